import { randomUUID } from "node:crypto"
import { Clock, Effect, Layer, Option, Schedule } from "effect"
import type { Drain } from "../../../contract/domain/Drain.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { serverOf } from "../../../contract/domain/Journal.ts"
import { admits } from "../../../contract/domain/Key.ts"
import { isUnderway, type Migration } from "../../../contract/domain/Migration.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { currentRestriction } from "../../http/Principal.ts"
import { NodeMigrations } from "../../nodes/NodeMigrations.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { ServerLocks } from "../state/ServerLocks.ts"
import { ServersOptions } from "../state/ServersOptions.ts"
import { deadlineOf, makeDrainDeadline, makeDrains } from "./drains.ts"
import { makeDestinations, makeMigrateStep } from "./migrateStep.ts"
import { makeDrainPlan, migrationBlocker, migrationDelay, progressOf } from "./migrationProgress.ts"
import { makeMigrationSteps } from "./migrationSteps.ts"

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
    const pause = Schedule.spaced(options.migrationPause)

    const nodeOf = (id: NodeId) => Effect.map(Effect.option(registry.get(id)), Option.getOrUndefined)

    const migrating = yield* makeWorkQueue({
      name: "migration",
      fields: (server_id) => ({ server_id }),
      step: yield* makeMigrateStep(destinations, drains),
      backoff: pause,
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
      backoff: pause,
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
