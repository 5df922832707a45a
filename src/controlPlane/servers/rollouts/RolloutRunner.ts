import { Clock, Duration, Effect, Layer, Schedule } from "effect"
import { revisionOf } from "../../../contract/domain/compareDefinitions.ts"
import { isUnderway } from "../../../contract/domain/Drain.ts"
import { DatabaseFull, Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { serverOf } from "../../../contract/domain/Journal.ts"
import { admits, restrictionOf } from "../../../contract/domain/Key.ts"
import type { PowerAction } from "../../../contract/domain/NodeMessages.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { isOver, type RolloutRecord, type RolloutServer } from "../../../contract/domain/Rollout.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { staysUp } from "../../../contract/domain/ServerStatus.ts"
import type { DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { makeWorkQueue, type StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { KeyRepo } from "../../store/repos/KeyRepo.ts"
import { RolloutRepo } from "../../store/repos/RolloutRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/sqlErrors.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { ServersOptions } from "../state/ServersOptions.ts"
import { advance, type Facts, isHeldUp, onFailure, serverStep } from "./rolloutRules.ts"

/** Whether the write failed because of the database, and is repeated. */
const isOfDatabase = ({ detail }: Unavailable) =>
  [DatabaseFull.of(), Unavailable.store(), Unavailable.storeLocked()].some((other) => other.detail === detail)

/** Observes the servers of rollouts. */
const makeFacts = Effect.gen(function* () {
  const crashes = yield* CrashRepo
  const index = yield* ServerIndex
  const registry = yield* NodeRegistry
  const store = yield* Store
  const { unavailableReason } = yield* makeNodeAvailability
  const nodeTimeout = Duration.toMillis((yield* ServersOptions).rolloutNodeTimeout)
  /** By server: the time in ms since which it waits for its node. */
  const heldUpSince = new Map<ServerId, number>()

  /** Returns the last crash of a server, also if the crash deleted it. */
  const lastCrash = Effect.fnUntraced(function* (server: RolloutServer, record: ServerRecord | undefined) {
    if (record !== undefined) return yield* index.lastCrash(record.id)
    if (server.restarted_at === null) return undefined
    return (yield* store.read(crashes.find({ server_id: server.server_id, limit: 1 })))?.[0]
  })

  const factsOf = Effect.fnUntraced(function* (server: RolloutServer): Effect.fn.Return<Facts, Unavailable> {
    const id = server.server_id
    const record = index.get(id)
    const now = yield* Clock.currentTimeMillis
    const away =
      record === undefined || registry.isConnected(record.node_id)
        ? undefined
        : ((yield* unavailableReason(record.node_id)) ?? `node ${record.node_id} is not connected`)
    const since = isHeldUp({ away, record }) === undefined ? undefined : (heldUpSince.get(id) ?? now)
    if (since === undefined) heldUpSince.delete(id)
    else heldUpSince.set(id, since)
    return {
      record,
      revision: record === undefined ? undefined : revisionOf(record.definition),
      crash: yield* lastCrash(server, record),
      isMigrating: isUnderway(index.migrationOf(id)),
      away,
      isTooLong: since !== undefined && now - since > nodeTimeout,
      now
    }
  })

  return { factsOf, heldUpSince }
})

/** Stores the progress of servers. */
const makeProgress = Effect.gen(function* () {
  const repo = yield* RolloutRepo
  const store = yield* Store

  const save = (server: RolloutServer) => store.write(repo.saveServer(server))

  const enter = Effect.fnUntraced(function* (server: RolloutServer) {
    const { phase, reason, rollout_id } = server
    const write = Effect.gen(function* () {
      if (!(yield* repo.saveServer(server))) return
      yield* append({ topic: "rollout:changed", rollout_id })
      const before = yield* repo.find(rollout_id)
      if (phase !== "failed" || before === undefined) return
      const after = onFailure(before, server)
      if (after === before) return
      yield* repo.save(after)
      if (after.rolling_back) yield* repo.turnBack(rollout_id)
    })
    yield* store.write(write)
    const log =
      phase === "failed"
        ? Effect.logWarning(`server failed in a rollout: ${reason}`)
        : Effect.logInfo(`server ${phase} in a rollout`)
    yield* Effect.annotateLogs(log, { rollout_id })
  })

  const end = (server: RolloutServer, phase: "done" | "failed", reason: string | null) =>
    Effect.as(enter({ ...server, phase, reason }), "done" as const)

  const failed = (server: RolloutServer, reason: string) =>
    end(server, "failed", server.reason === null ? reason : `${server.reason}; rollback: ${reason}`)

  /** Stores that the start of a server is timed from now on. */
  const time = (server: RolloutServer, { crash, now }: Facts) =>
    save({ ...server, restarted_at: now, crash_before: crash?.id ?? null })

  return { end, enter, failed, save, time }
})

/** The steps that change the definition of a server or call its node. */
const makeCalls = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const keys = yield* KeyRepo
  const lifecycle = yield* ServerLifecycle
  const repo = yield* RolloutRepo
  const store = yield* Store
  const { failed, save, time } = yield* makeProgress

  /** Whether a server has left the limits of the key that created the rollout. */
  const isOutside = Effect.fnUntraced(function* ({ created_by }: RolloutRecord, record: ServerRecord) {
    const key = created_by === null ? undefined : yield* store.read(keys.find(created_by))
    return key !== undefined && !admits(restrictionOf(key), record)
  })

  const define = Effect.fnUntraced(function* (
    server: RolloutServer
  ): Effect.fn.Return<StepOutcome, Unavailable> {
    const { rollout_id, server_id, target } = server
    const definition = yield* store.read(repo.definition(rollout_id, target))
    if (definition === undefined) return "done"
    let isDecided = false
    const by = (record: ServerRecord) =>
      Effect.suspend(() => {
        isDecided = true
        const isExpected = revisionOf(record.definition) === server.earlier
        return isExpected ? Effect.succeed({ definition }) : Effect.fail("changed" as const)
      })
    return yield* lifecycle.redefine(server_id, by).pipe(
      Effect.as("again" as const),
      Effect.catch((error): Effect.Effect<StepOutcome, Unavailable> => {
        if (error === "changed" || error._tag === "NotFound") return Effect.succeed("again")
        if (error._tag === "Unavailable" && isOfDatabase(error)) return Effect.fail(error)
        return isDecided ? failed(server, error.detail) : Effect.succeed("again")
      })
    )
  })

  const call = Effect.fnUntraced(function* (
    server: RolloutServer,
    { definition, id, node_id }: ServerRecord,
    action: Extract<PowerAction, "start" | "restart">,
    facts: Facts
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    const daemon = yield* daemons.of(node_id)
    const called = yield* Effect.result(daemon.power(id, action, stopTimeoutOf(definition)))
    if (called._tag === "Failure") {
      const error = called.failure
      if (error._tag !== "DaemonRefused") return yield* error
      if (error.status === 404) yield* lifecycle.markForVerification([id])
      // 404: the server is being installed again; 409: the node is busy with it.
      if (error.status === 422 || error.status === 500)
        return yield* failed(server, `cannot be started: ${error.detail}`)
      if (error.status === 409 && server.restarted_at === null) yield* time(server, facts)
      return "again"
    }
    if (server.restarted_at === null || action === "restart") yield* time(server, facts)
    return "again"
  })

  const notify = Effect.fnUntraced(function* (
    server: RolloutServer,
    node_id: NodeId,
    line: string,
    { now }: Facts
  ) {
    const daemon = yield* daemons.of(node_id)
    yield* Effect.catchTag(daemon.commands(server.server_id, [line]), "DaemonRefused", () => Effect.void)
    yield* save({ ...server, notified_at: now })
    return "again" as const
  })

  return { call, define, isOutside, notify }
})

const makeRolloutServers = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* RolloutRepo
  const store = yield* Store
  const { factsOf, heldUpSince } = yield* makeFacts
  const { end, enter, failed, save, time } = yield* makeProgress
  const { call, define, isOutside, notify } = yield* makeCalls
  const waiting = new Set<ServerId>()

  const act = Effect.fnUntraced(function* (
    rollout: RolloutRecord,
    server: RolloutServer
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    const facts = yield* factsOf(server)
    const { record } = facts
    const step = serverStep(rollout, server, facts)
    switch (step.do) {
      case "define":
        return record !== undefined && (yield* isOutside(rollout, record))
          ? yield* end(server, "done", server.reason)
          : yield* define(server)
      case "notify":
        return record === undefined
          ? "again"
          : yield* notify(server, record.node_id, rollout.settings.notify ?? "", facts)
      case "restart":
      case "start":
        return record === undefined ? "again" : yield* call(server, record, step.do, facts)
      case "watch":
        yield* time(server, facts)
        return "again"
      case "forget":
        yield* save({ ...server, restarted_at: null })
        return "again"
      case "release":
        waiting.add(server.server_id)
        if (server.phase === "changing") yield* enter({ ...server, phase: "waiting" })
        return "done"
      case "wait":
        return "again"
      case "done":
        return yield* end(server, "done", server.reason)
      case "fail":
        return yield* failed(server, step.reason)
    }
  })

  const step = Effect.fnUntraced(function* (
    id: ServerId
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    waiting.delete(id)
    const server = yield* store.read(repo.server(id))
    const isUnderWay = server?.phase === "changing" || server?.phase === "waiting"
    const rollout = isUnderWay ? yield* store.read(repo.find(server.rollout_id)) : undefined
    if (server === undefined || rollout === undefined) {
      heldUpSince.delete(id)
      return "done"
    }
    const record = index.get(id)
    // It is not known whether a server of a lost node is up.
    if (server.was_up !== null || record?.status === "unknown") return yield* act(rollout, server)
    const begun = { ...server, was_up: record !== undefined && staysUp(record) }
    yield* save(begun)
    return yield* act(rollout, begun)
  })

  return { step, waiting, heldUpSince } as const
})

const logState = ({ id, reason, state }: RolloutRecord) => {
  const text = reason === null || isOver(state) ? `rollout ${state}` : `rollout ${state}: ${reason}`
  const isBad = state === "paused" || state === "failed" || state === "rolled_back"
  return Effect.annotateLogs(Effect.logWithLevel(isBad ? "Warn" : "Info")(text), { rollout_id: id })
}

/**
 * Runs the rollouts on the leader (spec 3.13). One queue begins servers, the other works on them. The state is in the
 * database, and each step can be repeated.
 */
export const RolloutRunner = Layer.effectDiscard(
  Effect.gen(function* () {
    const leadership = yield* Leadership
    const repo = yield* RolloutRepo
    const store = yield* Store
    const { heldUpSince, step, waiting } = yield* makeRolloutServers

    const changing = yield* makeWorkQueue({
      name: "rollout of a server",
      fields: (server_id) => ({ server_id }),
      step,
      backoff: Schedule.spaced((yield* ServersOptions).rolloutPause),
      leadership,
      resume: Effect.suspend(() => {
        waiting.clear()
        heldUpSince.clear()
        return store.read(repo.underWay)
      })
    })

    const next = Effect.fnUntraced(function* (id: string) {
      const before = yield* repo.find(id)
      if (before === undefined) return { changed: undefined, servers: [] }
      const counts = yield* repo.counts(id)
      const now = yield* nowText
      const { begins, rollout } = advance(before, counts, now)
      if (isOver(rollout.state) && rollout !== before) yield* repo.finish(rollout, counts)
      else if (rollout !== before) yield* repo.save(rollout)
      const changed = rollout.state === before.state ? undefined : rollout
      return { changed, servers: begins === 0 ? [] : yield* repo.begin(id, begins) }
    })

    const running = yield* makeWorkQueue({
      name: "rollout",
      fields: (rollout_id: string) => ({ rollout_id }),
      step: Effect.fnUntraced(function* (id: string): Effect.fn.Return<StepOutcome, Unavailable> {
        const { changed, servers } = yield* store.write(next(id))
        if (changed !== undefined) yield* logState(changed)
        for (const server of servers) changing.add(server)
        return "done"
      }),
      backoff: databaseRetrySchedule,
      leadership,
      resume: Effect.gen(function* () {
        // Of creations whose process has died.
        yield* store.write(repo.removeParts())
        return (yield* store.read(repo.unfinished)).map(({ id }) => id)
      })
    })

    yield* followChanges("controllers", (change) => {
      if (change.topic === "rollout:changed") running.add(change.rollout_id)
      const id = serverOf(change)
      if (id !== undefined && (changing.has(id) || waiting.has(id))) changing.add(id)
    })
  })
)
