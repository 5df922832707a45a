import { Clock, Effect, Option, Semaphore } from "effect"
import { type Drain, type DrainChoices, noticeMillis } from "../../../contract/domain/Drain.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { isUnderway, type Migration } from "../../../contract/domain/Migration.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { append, makeMigrationRecords } from "../state/migrationRecords.ts"
import { logFields } from "../state/recordChanges.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { ServerLocks } from "../state/ServerLocks.ts"
import { migrationBlocker } from "./migrationProgress.ts"

const AT_ONCE = 16

/** Returns the deadline of a drain in milliseconds since the epoch, infinite without one. */
export const deadlineOf = ({ deadline_at }: Drain): number =>
  deadline_at === null ? Number.POSITIVE_INFINITY : Date.parse(deadline_at)

const remains = (record: ServerRecord, migration: Migration | undefined, isUnplaced: boolean): boolean =>
  !record.definition.save ||
  migrationBlocker(record) !== undefined ||
  migration?.phase === "failed" ||
  isUnplaced

/** The deadline of a drain: servers that cannot leave get its line, then are stopped until the drain ends. */
export const makeDrainDeadline = Effect.fnUntraced(function* (
  drains: Drains,
  unplaced: ReadonlyMap<ServerId, string>
) {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks

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

  return Effect.fnUntraced(function* (drain: Drain) {
    const now = yield* Clock.currentTimeMillis
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

export const makeDrains = Effect.gen(function* () {
  const index = yield* ServerIndex
  const migrations = yield* MigrationRepo
  const records = yield* makeMigrationRecords
  const servers = yield* ServerRepo
  const store = yield* Store
  let known: ReadonlyMap<NodeId, Drain> = new Map()
  let isStale = true
  const reading = yield* Semaphore.make(1)
  const markStale = () => {
    isStale = true
  }
  const refresh = Effect.suspend(() => {
    if (!isStale) return Effect.succeed(known)
    isStale = false
    return store.read(migrations.drains).pipe(
      Effect.map((rows) => {
        known = new Map(rows.map((row) => [row.node_id, row]))
        return known
      }),
      Effect.onError(() => Effect.sync(markStale))
    )
  }).pipe(reading.withPermit)
  /** Begins or ends the drain of a node, and forgets its failed migrations, which are tried again. */
  const change = Effect.fnUntraced(function* (
    node_id: NodeId,
    drain: ReturnType<typeof migrations.endDrain>
  ) {
    const failed = (yield* index.migrations).filter(
      (migration) => migration.phase === "failed" && migration.from_node === node_id
    )
    yield* store.write(
      Effect.gen(function* () {
        yield* drain
        yield* append({ topic: "node:evacuation", node_id })
        for (const { server_id } of failed) {
          const record = Option.getOrUndefined(yield* servers.lock(server_id))
          const migration = Option.getOrUndefined(yield* migrations.find(server_id))
          if (record !== undefined && migration?.phase === "failed") yield* records.forget(record)
        }
      })
    )
  })

  return {
    begin: Effect.fn("NodeDrainer.begin")(function* (node_id: NodeId, choices: DrainChoices = {}) {
      const { deadline_at = null, notify = null, notify_seconds = null, parallel = null } = choices
      const asked_at = yield* nowText
      const drain = { node_id, asked_at, parallel, deadline_at, notify, notify_seconds, notified: false }
      yield* change(node_id, migrations.beginDrain(drain))
    }),
    /** Records that the servers at the deadline have the line. */
    setNotified: Effect.fnUntraced(function* (node_id: NodeId) {
      yield* store.write(
        Effect.gen(function* () {
          yield* migrations.setNotified(node_id)
          yield* append({ topic: "node:evacuation", node_id })
        })
      )
      markStale()
    }),
    end: Effect.fn("NodeDrainer.end")((node_id: NodeId) => change(node_id, migrations.endDrain(node_id))),
    markStale,
    all: refresh,
    of: (node_id: NodeId) => Effect.map(Effect.ignore(refresh), () => known.get(node_id))
  } as const
})
export type Drains = Effect.Success<typeof makeDrains>
