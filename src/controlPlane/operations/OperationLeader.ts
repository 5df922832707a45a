import { Cause, Clock, Context, Duration, Effect, Layer, Metric } from "effect"
import { isUnderway } from "../../contract/domain/Drain.ts"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import {
  hasEnded,
  isExclusive,
  type OperationProgress,
  type OperationRecord,
  shownOperation,
  waitingFor
} from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { operationCount, operationDuration } from "../../shared/observability/metrics.ts"
import { backoff } from "../../shared/work/backoff.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { makeWorkQueue, type StepOutcome } from "../../shared/work/WorkQueue.ts"
import { LiveFeed } from "../events/LiveFeed.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { Leadership } from "../store/Leadership.ts"
import { type OperationEnd, OperationRepo } from "../store/repos/OperationRepo.ts"
import { Store } from "../store/Store.ts"
import { databaseRetrySchedule } from "../store/sql/sqlErrors.ts"
import { type OperationRunner, OperationRunners, type RunnerError } from "./OperationRunners.ts"

/** The bounds and times of the leader's work, which tests change. */
export const OperationsOptions = Context.Reference<{
  /** Operations of files that run on a node at a time; as many of backups run beside them. */
  readonly perNode: number
  /** Operations of files that run for one server at a time. */
  readonly perServer: number
  /** How long an operation waits for its node. */
  readonly nodeTimeout: Duration.Input
  /** Between two reports of progress of an operation. */
  readonly progressEvery: Duration.Input
}>("muster/operations/OperationsOptions", {
  defaultValue: () => ({ perNode: 4, perServer: 2, nodeTimeout: "1 hour", progressEvery: "1 second" })
})

type Outcome = Pick<OperationEnd, "state" | "reason">

const failed = (reason: string): Outcome => ({ state: "failed", reason: cleanText(reason) })

const REVOKED = "the key that began it is no longer valid"

/** Finds out why an operation must be cancelled. */
const makeCancellation = Effect.gen(function* () {
  const index = yield* ServerIndex
  const keys = yield* ApiKeys
  const repo = yield* OperationRepo
  const store = yield* Store

  /** Returns the reason, nothing if there is none, or `ended`. */
  const look = Effect.fnUntraced(function* ({ created_by, id, server_id }: OperationRecord) {
    const now = yield* store.read(repo.find(id))
    if (now === undefined || hasEnded(now.state)) return "ended" as const
    if (now.cancelling !== null) return { reason: now.cancelling }
    const server = yield* index.lookUp(server_id)
    if (server === undefined) return { reason: "its server was deleted" }
    const holder = created_by === null ? undefined : yield* keys.holder(created_by)
    if (created_by !== null && holder === undefined) return { reason: REVOKED }
    if (!admits(holder?.restriction, server))
      return { reason: "the key that began it no longer reads the server" }
    return undefined
  })

  const revoked = ({ created_by }: OperationRecord) =>
    created_by === null ? Effect.never : Effect.as(keys.ended(created_by), { reason: REVOKED })

  /** Waits until an operation has ended or must be cancelled. */
  const awaited = Effect.fnUntraced(function* (operation: OperationRecord) {
    const changed = yield* index.changeOf(operation.server_id)
    while (true) {
      changed.closeUnsafe()
      const why = yield* Effect.retry(look(operation), databaseRetrySchedule)
      if (why !== undefined) return why
      yield* changed.await
    }
  }, Effect.scoped)

  return {
    look,
    awaited: (operation: OperationRecord) => Effect.raceFirst(awaited(operation), revoked(operation))
  }
})

/** Gives operations their turns: one server cannot take its node from the others, nor files from backups. */
const makeTurns = ({ perNode, perServer }: { readonly perNode: number; readonly perServer: number }) => {
  const ofNodes = makeKeyedLock(perNode)
  const backups = makeKeyedLock(perNode)
  // A drill waits for its server, for minutes: backups do not wait for drills.
  const drills = makeKeyedLock(perNode)
  const ofServers = makeKeyedLock(perServer)
  const turnsOf = (kind: OperationRecord["kind"]) => (kind === "backup.drill" ? drills : backups)
  const inTurn =
    ({ kind }: OperationRecord, { id, node_id }: ServerRecord) =>
    <A, E, R>(work: Effect.Effect<A, E, R>) =>
      isExclusive(kind)
        ? turnsOf(kind).withLock(node_id)(work)
        : // Only operations that have a turn of their server wait for the node.
          ofServers.withLock(id)(ofNodes.withLock(node_id)(work))
  /** Returns why an operation has to wait for its turn, if so. */
  const waitOf = ({ kind }: OperationRecord, { id, node_id }: ServerRecord): string | undefined => {
    if (isExclusive(kind))
      return turnsOf(kind).isFull(node_id) ? `node ${node_id} works on ${perNode} other backups` : undefined
    if (ofServers.isFull(id)) return `${perServer} other operations of its server are underway`
    return ofNodes.isFull(node_id) ? `node ${node_id} works on ${perNode} other operations` : undefined
  }
  return { inTurn, waitOf }
}

/** Runs the task of an operation with its runner. */
const makeWork = Effect.gen(function* () {
  const index = yield* ServerIndex
  const live = yield* LiveFeed
  const repo = yield* OperationRepo
  const store = yield* Store
  const options = yield* OperationsOptions
  const every = Duration.toMillis(options.progressEvery)
  const { inTurn, waitOf } = makeTurns(options)

  /** Keeps the newest figures; saves and publishes them from time to time. */
  const makeReport = (operation: OperationRecord, { blueprint_id, id, labels }: ServerRecord) => {
    let latest: OperationProgress | undefined
    let last = Number.NEGATIVE_INFINITY
    const report = Effect.fnUntraced(function* (progress: OperationProgress) {
      // The begin and the end of a wait are shown at once.
      const isOther = latest?.waiting !== progress.waiting
      latest = progress
      const now = yield* elapsedMillis
      if (!isOther && now - last < every) return
      last = now
      const isKept = yield* store.write(repo.saveProgress(operation.id, progress))
      if (!isKept) return
      const payload = {
        operation: shownOperation({ ...operation, progress }),
        created_by: operation.created_by
      }
      const at = yield* Clock.currentTimeMillis
      live.publish([{ topic: "operation", server_id: id, blueprint_id, labels, at, payload }])
    })
    return {
      report: (progress: OperationProgress) =>
        Effect.catch(report(progress), ({ detail }) =>
          Effect.logDebug(`the progress of an operation was not saved: ${detail}`)
        ),
      latest: () => latest
    }
  }

  return Effect.fnUntraced(function* (
    operation: OperationRecord,
    server: ServerRecord,
    runner: OperationRunner
  ): Effect.fn.Return<(Outcome & { readonly progress?: OperationProgress }) | "again", RunnerError> {
    const wait = waitOf(operation, server)
    if (wait !== undefined) yield* makeReport(operation, server).report(waitingFor(wait))
    return yield* inTurn(
      operation,
      server
    )(
      Effect.gen(function* () {
        // It may have left the node, or be about to, since the operation began to wait.
        const now = index.get(server.id)
        if (now?.node_id !== server.node_id || isUnderway(index.migrationOf(server.id))) return "again"
        const begun = yield* store.write(repo.run(operation.id, server))
        const { latest, report } = makeReport(begun ?? { ...operation, state: "running" }, server)
        const outcome = yield* runner.run(begun ?? operation, now, report).pipe(
          Effect.map((left): Outcome => ({ state: "done", reason: typeof left === "string" ? left : null })),
          Effect.catchTag("OperationFailed", ({ reason }) => Effect.succeed(failed(reason))),
          Effect.catchDefect((defect) =>
            Effect.as(
              Effect.logError("an operation has failed", Cause.die(defect)),
              failed("an internal error; the log of the service has the cause")
            )
          )
        )
        const progress = latest()
        return progress === undefined ? outcome : { ...outcome, progress }
      })
    )
  })
})

/** Repeats what a node could not be asked, until it has been away for too long. */
const makePatience = Effect.gen(function* () {
  const registry = yield* NodeRegistry
  const options = yield* OperationsOptions
  const longest = Duration.toMillis(options.nodeTimeout)
  /** By operation: the time in ms since which its node is away. */
  const awaySince = new Map<string, number>()
  return {
    forget: (id: string) => void awaySince.delete(id),
    /** Returns why an operation ends, if its node has been away for too long. */
    lost: Effect.fnUntraced(function* (id: string, node_id: NodeId) {
      const now = yield* elapsedMillis
      if (registry.isConnected(node_id)) awaySince.delete(id)
      const since = awaySince.get(id) ?? now
      awaySince.set(id, since)
      if (now - since < longest) return undefined
      const hours = Math.round(longest / 360_000) / 10
      return `node ${node_id} has not been connected for ${hours} h; what is done there is unknown`
    })
  }
})

/** Does the work of operations on the leader (spec 11.4). The state is in the database, and each step can be repeated. */
export const OperationLeader = Layer.effectDiscard(
  Effect.gen(function* () {
    const cancellation = yield* makeCancellation
    const index = yield* ServerIndex
    const leadership = yield* Leadership
    const patience = yield* makePatience
    const repo = yield* OperationRepo
    const runners = yield* OperationRunners
    const store = yield* Store
    const work = yield* makeWork

    const end = Effect.fnUntraced(function* (
      operation: OperationRecord,
      outcome: Omit<OperationEnd, "finished_at">
    ): Effect.fn.Return<StepOutcome, Unavailable> {
      const { created_at, id, kind, server_id } = operation
      const ending = runners.of(kind)?.ending
      if (ending !== undefined && outcome.state !== "done")
        yield* Effect.catchTag(ending(operation, outcome.reason ?? ""), "OperationFailed", () => Effect.void)
      const finished_at = yield* nowText
      const facts = index.factsOf(server_id)
      const ended = yield* store.write(repo.end(id, { ...outcome, finished_at }, facts))
      patience.forget(id)
      if (ended === undefined) return "done"
      const { reason, state } = outcome
      const labels = { kind, outcome: state }
      yield* Metric.update(Metric.withAttributes(operationCount, labels), 1)
      yield* Metric.update(
        Metric.withAttributes(operationDuration, labels),
        (Date.parse(finished_at) - Date.parse(created_at)) / 1000
      )
      const text = `operation ${state}: ${kind}${reason === null ? "" : `: ${reason}`}`
      yield* Effect.annotateLogs(Effect.logWithLevel(state === "failed" ? "Warn" : "Info")(text), {
        server_id
      })
      return "done"
    })

    /** Ends the task on its node, unless it has not begun or the server is gone with its files. */
    const cancel = Effect.fnUntraced(function* (
      operation: OperationRecord,
      runner: OperationRunner,
      reason: string
    ) {
      const now = yield* store.read(repo.find(operation.id))
      const server = index.get(operation.server_id)
      const left =
        now?.state === "running" && server !== undefined
          ? yield* Effect.catchTag(runner.cancel(now, server), "OperationFailed", (error) =>
              Effect.as(
                Effect.logWarning(`the task of a cancelled operation was not ended: ${error.reason}`),
                undefined
              )
            )
          : undefined
      return yield* end(
        operation,
        left === undefined ? { state: "cancelled", reason } : { state: "done", reason: left }
      )
    })

    const advance = Effect.fnUntraced(function* (
      operation: OperationRecord,
      server: ServerRecord | undefined,
      runner: OperationRunner
    ): Effect.fn.Return<StepOutcome, RunnerError> {
      const why = yield* cancellation.look(operation)
      if (why === "ended") return "done"
      if (why !== undefined) return yield* cancel(operation, runner, why.reason)
      // A migrating server has its files on its next node later.
      if (server === undefined || isUnderway(index.migrationOf(server.id))) return "again"
      const outcome = yield* Effect.raceFirst(
        cancellation.awaited(operation),
        work(operation, server, runner)
      )
      if (outcome === "ended") return "done"
      if (outcome === "again") return outcome
      return "state" in outcome
        ? yield* end(operation, outcome)
        : yield* cancel(operation, runner, outcome.reason)
    })

    const queue = yield* makeWorkQueue({
      name: "operation",
      fields: (operation_id: string) => ({ operation_id }),
      step: Effect.fnUntraced(function* (id: string): Effect.fn.Return<StepOutcome, RunnerError> {
        const operation = yield* store.read(repo.find(id))
        const runner = operation === undefined ? undefined : runners.of(operation.kind)
        if (operation === undefined || hasEnded(operation.state)) return "done"
        // A newer version has begun it, and does it once it leads.
        if (runner === undefined) return "again"
        const server = index.get(operation.server_id)
        return yield* Effect.catchTag(
          advance(operation, server, runner),
          "NodeUnreachable",
          Effect.fnUntraced(function* (error) {
            // A backup may be on another node than the server.
            const reason = yield* patience.lost(id, error.node_id)
            const progress = waitingFor(`node ${error.node_id} is not connected`)
            if (reason === undefined && operation.progress?.waiting !== progress.waiting)
              yield* store.write(repo.saveProgress(id, progress))
            return reason === undefined ? yield* error : yield* end(operation, failed(reason))
          })
        )
      }),
      backoff: backoff({ first: "200 millis", longest: "5 seconds" }),
      leadership,
      resume: Effect.map(store.read(repo.unfinished), (all) => all.map(({ id }) => id))
    })

    yield* followChanges("controllers", (change) => {
      if (change.topic !== "server:operation") return
      const { id, state } = change.payload.operation
      if (!hasEnded(state)) queue.add(id)
    })
  })
)
