import { randomUUID } from "node:crypto"
import { Clock, Effect, Layer, Option, Schedule, Semaphore } from "effect"
import {
  type Drain,
  type DrainChoices,
  isUnderway,
  type Migration,
  noticeMillis
} from "../../../contract/domain/Drain.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { serverOf } from "../../../contract/domain/Journal.ts"
import { admits } from "../../../contract/domain/Key.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { isUp, staysUp } from "../../../contract/domain/ServerStatus.ts"
import { pause } from "../../../shared/work/slices.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { currentRestriction } from "../../http/Principal.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeMigrations, NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeMigrationRecords } from "../state/migrationRecords.ts"
import { logFields } from "../state/recordChanges.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { ServerLocks, ServersOptions } from "../state/ServersOptions.ts"
import { makeDestinations, makeMigrateStep, makeMigrationSteps } from "./migrateStep.ts"
import { makeDrainPlan, migrationBlocker, migrationDelay, progressOf } from "./migrationProgress.ts"

const AT_ONCE = 16

/** Returns the deadline of a drain in milliseconds since the epoch, infinite without one. */
const deadlineOf = ({ deadline_at }: Drain): number =>
  deadline_at === null ? Number.POSITIVE_INFINITY : Date.parse(deadline_at)

const remains = (record: ServerRecord, migration: Migration | undefined, isUnplaced: boolean): boolean =>
  !record.definition.save ||
  migrationBlocker(record) !== undefined ||
  migration?.phase === "failed" ||
  isUnplaced

/** The deadline of a drain: servers that cannot leave get its line, then are stopped until the drain ends. */
const makeDrainDeadline = Effect.fnUntraced(function* (
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
      if (isIncluded && staysUp(record) && remains(record, migration, unplaced.has(record.id)))
        found.push(record)
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

const makeDrains = Effect.gen(function* () {
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
          const record = yield* servers.lock(server_id)
          const migration = yield* migrations.find(server_id)
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

/** Whether a drain includes a server: saved and on the node at its begin. A later one was placed by name. */
const isDrained = (record: ServerRecord, { asked_at }: Drain) =>
  record.definition.save && record.created_at <= asked_at

/** Whether this controller acts on a migration. In the other phases the nodes act. */
const hasStep = (migration: Migration | null): boolean =>
  migration?.phase === "leaving" || migration?.phase === "returning"

/**
 * Migrates the saved servers of drained nodes on the leader, a few a node. The state is in the database, each step
 * can be repeated, and any replica begins, ends and shows a drain.
 */
export const NodeDrainer = Layer.effect(
  NodeMigrations,
  Effect.gen(function* () {
    const destinations = yield* makeDestinations
    const drains = yield* makeDrains
    const index = yield* ServerIndex
    const leadership = yield* Leadership
    const locks = yield* ServerLocks
    const registry = yield* NodeRegistry
    const steps = yield* makeMigrationSteps
    const { unavailableReason } = yield* makeNodeAvailability
    const keepDeadline = yield* makeDrainDeadline(drains, destinations.unplaced)
    const plan = yield* makeDrainPlan
    const options = yield* ServersOptions
    const again = Schedule.spaced(options.migrationPause)

    const nodeOf = (id: NodeId) => Effect.map(Effect.option(registry.get(id)), Option.getOrUndefined)

    const migrating = yield* makeWorkQueue({
      name: "migration",
      fields: (server_id) => ({ server_id }),
      step: yield* makeMigrateStep(destinations, drains),
      backoff: again,
      leadership,
      permit: locks.withLock,
      resume: Effect.map(index.migrations, (all) => all.filter(hasStep).map(({ server_id }) => server_id))
    })

    const begin = Effect.fnUntraced(function* (node_id: NodeId, drain: Drain) {
      const isOver = (yield* Clock.currentTimeMillis) >= deadlineOf(drain)
      const most = isOver ? Number.POSITIVE_INFINITY : (drain.parallel ?? options.migrationsPerNode)
      const all = yield* index.migrations
      const known = new Set(all.map((migration) => migration.server_id))
      let running = all.filter((one) => isUnderway(one) && one.from_node === node_id).length
      for (const record of yield* index.onNode(node_id)) {
        if (running >= most) return
        if (known.has(record.id) || !isDrained(record, drain)) continue
        if (migrationBlocker(record) !== undefined || migrationDelay(record) !== undefined) continue
        yield* pause
        if ((yield* destinations.find(record)) === undefined) continue
        if (yield* locks.withLock(record.id)(steps.begin(record, randomUUID()))) running += 1
        else yield* destinations.release(record.id)
      }
    })
    const drainStep = Effect.fnUntraced(function* (node_id: NodeId) {
      const drain = (yield* drains.all).get(node_id)
      if (drain === undefined) return "done"
      const node = yield* nodeOf(node_id)
      if (node?.drained === true && node.connected) {
        yield* begin(node_id, drain)
        yield* keepDeadline(drain)
      }
      // Servers may become free to migrate without a journal entry, as when another node connects.
      return "again"
    })
    const draining = yield* makeWorkQueue({
      name: "drain",
      fields: (node_id) => ({ node_id }),
      step: drainStep,
      backoff: again,
      leadership,
      resume: Effect.map(drains.all, (all) => [...all.keys()])
    })

    yield* followChanges("controllers", (change) => {
      if (change.topic === "node:evacuation") {
        drains.markStale()
        draining.add(change.node_id)
      } else if (change.topic === "server:move") {
        for (const node_id of draining.keys()) draining.add(node_id)
        if (hasStep(change.payload)) migrating.add(change.server_id)
      }
      const id = serverOf(change)
      if (id !== undefined && migrating.has(id)) migrating.add(id)
    })
    yield* leadership.whileLeader(
      Effect.andThen(
        Effect.addFinalizer(() => destinations.releaseAll),
        Effect.never
      )
    )

    return NodeMigrations.of({
      begin: drains.begin,
      end: drains.end,
      plan,
      progress: Effect.fnUntraced(function* (node_id: NodeId) {
        const drain = yield* drains.of(node_id)
        if (drain === undefined) return undefined
        const all = yield* index.migrations
        const elsewhere = all
          .filter((migration) => migration.phase === "arriving" && migration.from_node === node_id)
          .flatMap(({ server_id }) => index.get(server_id) ?? [])
        const away = new Map<NodeId, string>()
        for (const id of new Set([node_id, ...elsewhere.map((record) => record.node_id)])) {
          const reason = yield* unavailableReason(id)
          if (reason !== undefined) away.set(id, reason)
        }
        const within = yield* currentRestriction
        const readable = (some: ReadonlyArray<ServerRecord>) => some.filter((one) => admits(within, one))
        return progressOf({
          node_id,
          here: readable(yield* index.onNode(node_id)),
          elsewhere: readable(elsewhere),
          away,
          migrations: new Map(all.map((migration) => [migration.server_id, migration])),
          drain,
          isDrained: (record) => isDrained(record, drain),
          unplaced: destinations.unplaced
        })
      })
    })
  })
)
