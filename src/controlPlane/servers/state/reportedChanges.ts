import { Array as Arr, Effect, Metric, Semaphore } from "effect"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { DaemonServer, Report } from "../../../contract/domain/NodeMessages.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { isRestartPending } from "../../../contract/domain/RunRule.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import {
  crashes,
  installationDuration,
  installations,
  restarts,
  startDuration
} from "../../../shared/observability/metrics.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import { makeKeyedLock } from "../../../shared/work/KeyedLock.ts"
import { CapacityRepo } from "../../store/repos/CapacityRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import type { Write } from "../../store/sql/Transaction.ts"
import { makeMigrationRecords } from "./migrationRecords.ts"
import {
  type Changed,
  logChange,
  logFields,
  makeMarkForVerification,
  type RecordChanges,
  type Turn
} from "./recordChanges.ts"
import {
  changesNothing,
  onMissing,
  onNodeGivenUp,
  onNodeLost,
  onReport,
  onSnapshot,
  type Transition
} from "./transitions.ts"

/** The label of a crash, by the reasons of `crash` events (spec 3.18). */
const causeOf = (reason: string): string => {
  if (reason === "out of memory") return "out_of_memory"
  if (reason === "start timed out") return "start_timeout"
  return reason.startsWith("signal") ? "signal" : "exit_code"
}

/** Seconds between two times, or until now, if both times can be read. */
const secondsFrom = (from: string | undefined, to: string | undefined): number | undefined => {
  const seconds = (Date.parse(to ?? "") - Date.parse(from ?? "")) / 1000
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds)
}

const endAs = (outcome: "ready" | "failed") => ({
  count: Metric.withAttributes(installations, { outcome }),
  duration: Metric.withAttributes(installationDuration, { outcome })
})
const ends = { ready: endAs("ready"), failed: endAs("failed") }

/** Counts a committed report, received `at` (RFC 3339). */
const countChange = Effect.fnUntraced(function* ({ outcome, record }: Changed, at: string) {
  const { crash, details, install, status } = outcome
  if (crash !== undefined) {
    yield* Metric.update(Metric.withAttributes(crashes, { cause: causeOf(crash.reason) }), 1)
    const restart = details?.restart
    if (restart !== undefined) {
      const outcome = isRestartPending(restart) ? "pending" : "given_up"
      yield* Metric.update(Metric.withAttributes(restarts, { outcome }), 1)
    }
  }
  const isEnd = install?.phase === "ready" || install?.phase === "failed"
  if (isEnd && install.phase !== record.install.phase) {
    const { count, duration } = ends[install.phase]
    yield* Metric.update(count, 1)
    const seconds = secondsFrom(install.started_at, install.finished_at)
    if (seconds !== undefined) yield* Metric.update(duration, seconds)
  }
  if (status === "running" && record.status === "starting") {
    const seconds = secondsFrom(record.updated_at, at)
    if (seconds !== undefined) yield* Metric.update(startDuration, seconds)
  }
})

/**
 * Added to the sequence of a lost server: late reports of the lost instance must not count, and its removal must be
 * older than the new instance.
 */
const LOSS_GAP = 1_000
/** Largest step of the sequence by one report: a faulty node must not use up later nodes' sequences. */
const LARGEST_STEP = 1_000_000
/** Late reports are at most so far behind. One further behind follows a false sequence, and restarts it. */
const MOST_BEHIND = 100_000
/** Reports that share a write: a longer one would hold up all others. */
const MOST_AT_ONCE = 500
const MESSAGES_OF_NODE = 16
const BATCH = 100

const isSilent = (outcome: Transition): boolean => changesNothing(outcome) && outcome.surprising !== true

/** The changes that nodes cause by reports and snapshots. */
export const makeReportedChanges = Effect.fnUntraced(function* (records: RecordChanges) {
  const store = yield* Store
  const servers = yield* ServerRepo
  const migrations = yield* MigrationRepo
  const migrationRecords = yield* makeMigrationRecords
  const room = yield* Semaphore.make(MOST_AT_ONCE)
  const nodes = makeKeyedLock<NodeId>(MESSAGES_OF_NODE)

  /** Applies a report of a node other than the record's. Returns false if the server is unknown. */
  const fromElsewhere = Effect.fnUntraced(function* (
    record: ServerRecord | undefined,
    id: ServerId,
    node_id: NodeId
  ) {
    // The source node of a migration keeps the files until the server has arrived, and its reports do not count.
    const migration = yield* migrations.find(id)
    if (migration?.from_node === node_id) return true
    if (!(yield* migrations.deletionsOf(id)).includes(node_id)) return false
    yield* migrationRecords.deleteOn(record ?? { id, blueprint_id: "" }, node_id)
    return true
  })

  const apply = (node_id: NodeId, message: Report, received_at: string) =>
    Effect.fnUntraced(function* (record: ServerRecord | undefined, turn: Turn) {
      const id = message.server_id
      if (record?.node_id !== node_id) return { known: yield* fromElsewhere(record, id, node_id) }
      const behind = record.last_sequence - message.sequence
      if (behind >= 0 && behind <= MOST_BEHIND) return { known: true }
      const outcome = onReport(record, message, received_at)
      const sequence = Math.min(message.sequence, record.last_sequence + LARGEST_STEP)
      yield* records.carryOut(record, outcome, { sequence, turn })
      return { known: true, changed: { record, outcome } }
    })

  const reports = Effect.fnUntraced(
    function* (node_id: NodeId, messages: ReadonlyArray<Report>) {
      const received_at = yield* nowText
      const applied = yield* records
        .onRecords(
          messages.map((message) => ({
            id: message.server_id,
            decideOn: apply(node_id, message, received_at)
          }))
        )
        .pipe(room.withPermits(messages.length), nodes.withLock(node_id))
      const unknown = new Set<ServerId>()
      for (const [at, { changed, known }] of applied.entries()) {
        const id = messages[at]?.server_id
        if (!known && id !== undefined) unknown.add(id)
        if (changed === undefined || isSilent(changed.outcome)) continue
        yield* logChange(changed)
        yield* countChange(changed, received_at)
      }
      return unknown
    },
    Effect.uninterruptible,
    inSpan("ServerLifecycle.reports")
  )

  const observe = Effect.fnUntraced(
    function* (node_id: NodeId, view: DaemonServer, sequence: number) {
      if (view.unsent_reports > 0) return false
      let isTaken = true
      const by = (record: ServerRecord) => {
        isTaken = record.last_sequence === sequence || record.node_id !== node_id
        return isTaken && record.node_id === node_id ? onSnapshot(record, view) : {}
      }
      const [changed] = yield* records.onRecords([
        {
          id: view.id,
          decideOn: (record, turn) =>
            record === undefined ? Effect.succeed(undefined) : records.decide(record, by, { turn })
        }
      ])
      if (changed !== undefined && !changesNothing(changed.outcome)) {
        yield* Effect.logInfo(`state taken from the node: ${view.status}, ${view.install.phase}`).pipe(
          Effect.annotateLogs(logFields(changed.record))
        )
      }
      yield* logChange(changed)
      return isTaken
    },
    Effect.uninterruptible,
    inSpan("ServerLifecycle.observe")
  )

  const missing = Effect.fn("ServerLifecycle.missing")(function* (node_id: NodeId, id: ServerId) {
    const changed = yield* store.write(
      Effect.tap(
        records.change(id, (record) => (record.node_id === node_id ? onMissing(record) : {})),
        (it) =>
          it?.outcome.install === undefined
            ? Effect.void
            : servers.set(id, { last_sequence: it.record.last_sequence + LOSS_GAP })
      )
    )
    if (changed !== undefined) {
      const what = changed.outcome.destroys !== undefined ? "it is gone" : "it is installed again, empty"
      yield* Effect.logWarning(`the node does not have the server: ${what}`).pipe(
        Effect.annotateLogs(logFields(changed.record))
      )
    }
    yield* logChange(changed)
  }, Effect.uninterruptible)

  return {
    /**
     * Applies reports of a node in one write, in order per server, and returns unknown servers. Repetitions change
     * nothing; a report from another node repeats the pending deletion there.
     */
    reports,
    /** Applies a snapshot of one server. Returns false if a pending report, or one after `sequence`, may be newer. */
    observe,
    /** Applies that the node does not have the server. */
    missing
  }
})

/** The changes by the absence of nodes, and what the leader verifies after it. */
export const makeAbsences = Effect.fnUntraced(function* ({ changeAll }: RecordChanges) {
  const store = yield* Store
  const servers = yield* ServerRepo
  const capacity = yield* CapacityRepo
  const mark = yield* makeMarkForVerification

  const inBatches = (ids: ReadonlyArray<ServerId>, mutation: (batch: ReadonlyArray<ServerId>) => Write) =>
    Effect.forEach(Arr.chunksOf(ids, BATCH), (batch) => store.write(mutation(batch)), { discard: true })

  /** Changes servers of a disconnected node, unless it has connected or the server has moved. */
  const changeAway = (
    node_id: NodeId,
    ids: ReadonlyArray<ServerId>,
    by: (record: ServerRecord) => Transition
  ) =>
    inBatches(
      ids,
      Effect.fnUntraced(function* (batch) {
        if (yield* capacity.isConnected(node_id)) return
        yield* changeAll(batch, (record) => (record.node_id === node_id ? by(record) : {}))
      })
    )

  const sequences = Effect.fn("ServerLifecycle.sequences")(function* (
    node_id: NodeId,
    ids: ReadonlyArray<ServerId>
  ) {
    const rows = yield* store.read(servers.sequences(ids))
    return new Map(rows.filter((row) => row.node_id === node_id).map((row) => [row.id, row.last_sequence]))
  })

  return {
    /** Sets the servers of a lost node to `unknown`, unless the node is connected again. */
    nodeLost: (node_id: NodeId, ids: ReadonlyArray<ServerId>) => changeAway(node_id, ids, onNodeLost),
    /** Deletes the servers of a node that is given up, except saved ones, unless the node is connected again. */
    nodeGivenUp: (node_id: NodeId, ids: ReadonlyArray<ServerId>) => changeAway(node_id, ids, onNodeGivenUp),
    /** Marks servers for verification by the leader, as their nodes may have lost them. */
    markForVerification: (ids: ReadonlyArray<ServerId>) =>
      inBatches(ids, (batch) => Effect.forEach(batch, mark, { discard: true })),
    verified: (id: ServerId) => Effect.asVoid(store.write(servers.setSuspected(id, false))),
    sequences,
    /** Returns `last_sequence` of a server, if it is on the node. */
    sequence: (node_id: NodeId, id: ServerId) =>
      Effect.map(sequences(node_id, [id]), (found) => found.get(id))
  }
})
