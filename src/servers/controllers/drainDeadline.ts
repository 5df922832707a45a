import { Effect } from "effect"
import { type Drain, noticeMillis } from "../../domain/Drain.ts"
import type { ServerId } from "../../domain/Id.ts"
import { isUnderway, type Migration } from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { stopTimeoutOf } from "../../domain/ServerDefinition.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { ExpiryClock } from "../../store/journal/ExpiryClock.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { logFields } from "../records/recordChanges.ts"
import { ServerLifecycle } from "../records/ServerLifecycle.ts"
import { ServerLocks } from "../records/ServerLocks.ts"
import { migrationBlocker } from "./canMigrate.ts"
import type { Drains } from "./drains.ts"

/** Servers that are called at a time. */
const AT_ONCE = 16

/** When the deadline of a drain is, in milliseconds since the epoch; infinite: never. */
export const deadlineOf = ({ deadline_at }: Drain): number =>
  deadline_at === null ? Number.POSITIVE_INFINITY : Date.parse(deadline_at)

/** Whether a server of a drained node remains there. */
const remains = (record: ServerRecord, migration: Migration | undefined, isUnplaced: boolean): boolean =>
  !record.definition.save ||
  migrationBlocker(record) !== undefined ||
  migration?.phase === "failed" ||
  isUnplaced

/**
 * The deadline of a drain: the servers that cannot leave the node by then are stopped, and stay stopped while it is
 * drained. Before that, they get its line.
 */
export const makeDrainDeadline = Effect.fnUntraced(function* (
  drains: Drains,
  unplaced: ReadonlyMap<ServerId, string>
) {
  const clock = yield* ExpiryClock
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks

  /** The servers that are up and cannot leave. */
  const remaining = Effect.fnUntraced(function* ({ asked_at, node_id }: Drain) {
    const found: Array<ServerRecord> = []
    for (const record of yield* index.onNode(node_id)) {
      const migration = index.migrationOf(record.id)
      const isIncluded = record.created_at <= asked_at && !isUnderway(migration)
      const goesUp = record.start_pending || (isUp(record.status) && record.status !== "stopping")
      if (isIncluded && goesUp && remains(record, migration, unplaced.has(record.id))) found.push(record)
    }
    return found
  })

  const logged = (record: ServerRecord) =>
    Effect.catch((error: { readonly _tag: string }) =>
      Effect.logInfo(`the node does not act for the deadline of its drain: ${error._tag}`).pipe(
        Effect.annotateLogs(logFields(record))
      )
    )

  const notify = (record: ServerRecord, line: string) =>
    record.status === "running"
      ? Effect.flatMap(daemons.of(record.node_id), (daemon) => daemon.commands(record.id, [line]))
      : Effect.void

  const stop = Effect.fnUntraced(function* (record: ServerRecord) {
    if (record.start_pending) yield* lifecycle.forgetStart(record.id)
    if (!isUp(record.status)) return
    const daemon = yield* daemons.of(record.node_id)
    yield* daemon.power(record.id, "stop", stopTimeoutOf(record.definition))
  })

  /** Does what is due; repeated while the node is drained. */
  return Effect.fnUntraced(function* (drain: Drain) {
    const now = yield* clock.millis
    const deadline = deadlineOf(drain)
    const { node_id, notified, notify: line, notify_seconds } = drain
    if (line !== null && !notified && now >= deadline - noticeMillis(notify_seconds)) {
      const servers = yield* remaining(drain)
      yield* Effect.forEach(servers, (record) => logged(record)(notify(record, line)), {
        concurrency: AT_ONCE,
        discard: true
      })
      // After the calls: a leader that ends in between lets the next one repeat the line.
      yield* drains.setNotified(node_id)
    }
    if (now < deadline) return
    yield* Effect.forEach(
      yield* remaining(drain),
      (record) => logged(record)(locks.withLock(record.id)(stop(record))),
      { concurrency: AT_ONCE, discard: true }
    )
  })
})
