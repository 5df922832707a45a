import { randomUUID } from "node:crypto"
import { Clock, type Duration, Effect, Layer, Option, Schedule, Semaphore, Stream } from "effect"
import type { Unavailable } from "../../domain/errors.ts"
import { serverOf } from "../../domain/Journal.ts"
import { isUnderway, type Migration } from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { NodeMigrations } from "../../nodes/NodeMigrations.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store, Transaction } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { makeWorkQueue, type StepOutcome } from "../../work/WorkQueue.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { makeMigrationRecords } from "../records/migrationRecords.ts"
import { ServerLifecycle } from "../records/ServerLifecycle.ts"
import { ServerLocks } from "../records/ServerLocks.ts"
import { isFinished } from "../records/transitions.ts"
import { migrationBlocker, migrationDelay } from "./canMigrate.ts"
import { makeDestinations } from "./destinations.ts"
import { progressOf } from "./migrationProgress.ts"
import { makeMigrationSteps } from "./migrationSteps.ts"

export interface NodeDrainerOptions {
  /** Servers that leave one node at a time. */
  readonly migrationsPerNode: number
  /** Between two attempts at a step whose condition does not hold yet. */
  readonly pause: Duration.Input
}

/** Whether a drain includes a server: saved, and on the node when the drain began. A later one was placed by name. */
const isDrained = (record: ServerRecord, asked_at: string) =>
  record.definition.save && record.created_at <= asked_at

/** The step of a server that migrates belongs to this controller; in the other phases its nodes act. */
const hasStep = (migration: Migration | null): boolean =>
  migration?.phase === "leaving" || migration?.phase === "returning"

/** The drains of nodes in the database, as memory follows them. */
const makeDrains = Effect.gen(function* () {
  const migrations = yield* MigrationRepo
  const store = yield* Store
  /** By node: when its drain began. */
  let began: ReadonlyMap<string, string> = new Map()
  let isStale = true
  const reading = yield* Semaphore.make(1)
  const markStale = () => {
    isStale = true
  }
  const refresh = Effect.suspend(() => {
    if (!isStale) return Effect.succeed(began)
    isStale = false
    return store.read(migrations.drains).pipe(
      Effect.map((rows) => {
        began = new Map(rows.map((row) => [row.node_id, row.asked_at]))
        return began
      }),
      Effect.onError(() => Effect.sync(markStale))
    )
  }).pipe(reading.withPermit)
  return {
    /** The node's drain may have begun or ended. */
    markStale,
    /** Reads the drains, if they may have changed. */
    all: refresh,
    /** When the drain of a node began, as far as it is known. */
    beganAt: (node_id: string) => Effect.map(Effect.ignore(refresh), () => began.get(node_id))
  } as const
})

/**
 * Migrates the saved servers of drained nodes, on the leader: a few of each node at a time, to nodes that the load
 * balancer chooses. Its state is in the database, so that the next leader continues; its steps can be repeated. Any
 * replica begins and ends a drain and shows its progress.
 */
export const NodeDrainer = (options: NodeDrainerOptions) =>
  Layer.effect(
    NodeMigrations,
    Effect.gen(function* () {
      const destinations = yield* makeDestinations
      const drains = yield* makeDrains
      const index = yield* ServerIndex
      const journal = yield* Journal
      const leadership = yield* Leadership
      const lifecycle = yield* ServerLifecycle
      const locks = yield* ServerLocks
      const migrationRepo = yield* MigrationRepo
      const records = yield* makeMigrationRecords
      const registry = yield* NodeRegistry
      const servers = yield* ServerRepo
      const steps = yield* makeMigrationSteps
      const store = yield* Store
      const { unavailableReason } = yield* makeNodeAvailability
      const pause = Schedule.spaced(options.pause)

      const nodeOf = (id: string) => Effect.map(Effect.option(registry.get(id)), Option.getOrUndefined)

      const leave = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
        const placement = yield* destinations.find(record)
        if (placement === undefined) return yield* steps.cancel(migration)
        // The node may have been lost or drained since; the server still runs, so there is time to choose again.
        if ((yield* nodeOf(placement.node_id))?.connected !== true) {
          yield* destinations.release(record.id)
          return "again" as const
        }
        const result = yield* steps.leave(migration, placement)
        if (result === "port-taken") yield* destinations.releaseAndAvoidPorts(record.id)
        if (result === "refused") yield* destinations.release(record.id)
        if (result === "port-taken" || result === "refused") yield* journal.catchUp
        // From here on the reservation is that of the record.
        if (result === "done" || result === "lost") destinations.reached(record.id)
        return result
      })

      const migrateStep = Effect.fnUntraced(function* (id: string) {
        const record = Option.getOrUndefined(yield* index.find(id))
        const migration = yield* index.migrationOf(id)
        if (record === undefined || !isUnderway(migration) || migration.phase === "arriving") {
          destinations.reached(id)
          return "done"
        }
        if (migration.phase === "returning") yield* destinations.release(id)
        const result = yield* migration.phase === "leaving"
          ? leave(record, migration)
          : steps.comeBack(migration)
        return result === "done" || result === "lost" ? "done" : "again"
      })
      const migrating = yield* makeWorkQueue({
        name: "migration",
        step: migrateStep,
        backoff: pause,
        leadership,
        permit: locks.withLock,
        resume: Effect.map(index.migrations, (all) => all.filter(hasStep).map(({ server_id }) => server_id))
      })

      /** Begins as many migrations from a node as may run at a time. */
      const begin = Effect.fnUntraced(function* (node_id: string, asked_at: string) {
        const all = yield* index.migrations
        const known = new Set(all.map((migration) => migration.server_id))
        let running = all.filter((one) => isUnderway(one) && one.from_node === node_id).length
        for (const record of yield* index.onNode(node_id)) {
          if (running >= options.migrationsPerNode) return
          if (known.has(record.id) || !isDrained(record, asked_at)) continue
          if (migrationBlocker(record) !== undefined || migrationDelay(record) !== undefined) continue
          if ((yield* destinations.find(record)) === undefined) continue
          if (yield* locks.withLock(record.id)(steps.begin(record, randomUUID()))) running += 1
          else yield* destinations.release(record.id)
        }
      })
      const drainStep = Effect.fnUntraced(function* (node_id: string) {
        const asked_at = (yield* drains.all).get(node_id)
        if (asked_at === undefined) return "done"
        const node = yield* nodeOf(node_id)
        if (node?.drained === true && node.connected) yield* begin(node_id, asked_at)
        // Servers of the node may become free to migrate without a journal entry, such as when another node connects.
        return "again"
      })
      const draining = yield* makeWorkQueue({
        name: "drain",
        step: drainStep,
        backoff: pause,
        leadership,
        resume: Effect.map(drains.all, (all) => [...all.keys()])
      })

      yield* journal.follow("controllers", (entries) =>
        Effect.sync(() => {
          for (const { change } of entries) {
            if (change.topic === "node:evacuation") {
              drains.markStale()
              draining.add(change.node_id)
            } else if (change.topic === "server:move") {
              for (const node_id of draining.keys()) draining.add(node_id)
              if (hasStep(change.payload)) migrating.add(change.server_id)
            }
            const id = serverOf(change)
            if (id !== undefined && migrating.has(id)) migrating.add(id)
          }
        })
      )
      yield* leadership.whileLeader(
        Effect.andThen(
          Effect.addFinalizer(() => destinations.releaseAll),
          Effect.never
        )
      )

      /** Servers that were migrating to a lost node return to the node that has their files, and can run there. */
      const returnStep = Effect.fnUntraced(function* (
        node_id: string
      ): Effect.fn.Return<StepOutcome, Unavailable> {
        if (registry.isConnected(node_id)) return "done"
        for (const record of yield* index.onNode(node_id)) {
          if ((yield* index.originOf(node_id, record.id)) === undefined || isFinished(record.install))
            continue
          yield* lifecycle
            .refuseInstall(record.id, `node ${registry.nameOf(node_id)} is lost`)
            .pipe(locks.withLock(record.id))
        }
        return "done"
      })
      const returning = yield* makeWorkQueue({
        name: "return from a lost node",
        step: returnStep,
        backoff: databaseRetrySchedule,
        leadership
      })
      yield* registry.changes.pipe(
        Stream.runForEach(({ kind, node_id }) =>
          Effect.sync(() => kind !== "connected" && returning.add(node_id))
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      /** Begins or ends the drain of a node, and forgets its failed migrations: they are tried again. */
      const change = Effect.fnUntraced(function* (
        node_id: string,
        drain: ReturnType<typeof migrationRepo.endDrain>
      ) {
        const failed = (yield* index.migrations).filter(
          (migration) => migration.phase === "failed" && migration.from_node === node_id
        )
        yield* store.write(
          Effect.gen(function* () {
            yield* drain
            const transaction = yield* Transaction
            yield* transaction.append({ topic: "node:evacuation", node_id })
            for (const { server_id } of failed) {
              const record = Option.getOrUndefined(yield* servers.lock(server_id))
              const migration = Option.getOrUndefined(yield* migrationRepo.find(server_id))
              if (record !== undefined && migration?.phase === "failed") yield* records.forget(record)
            }
          })
        )
      })

      return NodeMigrations.of({
        begin: Effect.fn("NodeDrainer.begin")(function* (node_id: string) {
          const asked_at = new Date(yield* Clock.currentTimeMillis).toISOString()
          yield* change(node_id, migrationRepo.beginDrain({ node_id, asked_at }))
        }),
        end: Effect.fn("NodeDrainer.end")((node_id: string) =>
          change(node_id, migrationRepo.endDrain(node_id))
        ),
        progress: Effect.fnUntraced(function* (node_id: string) {
          const asked_at = yield* drains.beganAt(node_id)
          if (asked_at === undefined) return undefined
          const all = yield* index.migrations
          const arriving = yield* Effect.forEach(
            all.filter((migration) => migration.phase === "arriving" && migration.from_node === node_id),
            (migration) => Effect.map(index.find(migration.server_id), Option.toArray)
          )
          const elsewhere = arriving.flat()
          const away = new Map<string, string>()
          for (const id of new Set([node_id, ...elsewhere.map((record) => record.node_id)])) {
            const reason = yield* unavailableReason(id)
            if (reason !== undefined) away.set(id, reason)
          }
          return progressOf({
            node_id,
            here: yield* index.onNode(node_id),
            elsewhere,
            away,
            migrations: new Map(all.map((migration) => [migration.server_id, migration])),
            isDrained: (record) => isDrained(record, asked_at),
            unplaced: destinations.unplaced
          })
        })
      })
    })
  )
