import { randomUUID } from "node:crypto"
import { Clock, type Duration, Effect, FiberMap, Latch, Layer, Option, Stream } from "effect"
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
  /** Servers of one node that move at the same time. */
  readonly movesPerNode: number
  /** Between two looks at what has not happened yet. */
  readonly pause: Duration.Input
}

/** Between two looks where there is nothing to do. */
const IDLE = "15 seconds"

/** Whether a server counts: saved, and there when its node was to be emptied. Who names such a node later means it. */
const isToLeave = (record: ServerRecord, asked_at: string) =>
  record.definition.save && record.created_at <= asked_at

/**
 * Background duty: empties drained nodes: moves their saved servers, a few at a time, to the nodes that the load balancer chooses. All
 * that it knows is in the store, so that whoever does the duties goes on from where it stood; its steps can be repeated.
 * Any replica is told to begin and to stop, and says how far it is.
 */
export const NodeDrainer = (options: NodeDrainerOptions) =>
  Layer.effect(
    NodeMigrations,
    Effect.gen(function* () {
      const destinations = yield* makeDestinations
      const leadership = yield* Leadership
      const index = yield* ServerIndex
      const journal = yield* Journal
      const lifecycle = yield* ServerLifecycle
      const locks = yield* ServerLocks
      const moves = yield* MigrationRepo
      const records = yield* makeMigrationRecords
      const registry = yield* NodeRegistry
      const servers = yield* ServerRepo
      const store = yield* Store
      const steps = yield* makeMigrationSteps
      const { unavailableReason } = yield* makeNodeAvailability

      /** When each node was to be emptied. */
      let asked: ReadonlyMap<string, string> = new Map()
      const news = yield* Latch.make(true)
      const latches = new Map<string, Latch.Latch>()

      /** Whether a replica was asked something since the last look. */
      let isStale = false
      const refresh = Effect.map(store.read(moves.evacuations), (rows) => {
        isStale = false
        asked = new Map(rows.map((row) => [row.node_id, row.asked_at]))
      })

      const canBeCalled = (node_id: string) =>
        Effect.map(
          Effect.option(registry.get(node_id)),
          (node) => Option.getOrUndefined(node)?.connected === true
        )

      const leave = Effect.fnUntraced(function* (record: ServerRecord, move: Migration) {
        const placement = yield* destinations.find(record)
        if (placement === undefined) return yield* steps.cancel(move)
        // The node may have been lost or drained since; the server still runs, so there is time to look again.
        if (!(yield* canBeCalled(placement.node_id))) {
          yield* destinations.release(record.id)
          return "again" as const
        }
        const result = yield* steps.leave(move, placement)
        if (result === "port-taken") yield* destinations.yieldPorts(record.id)
        if (result === "refused") yield* destinations.release(record.id)
        if (result === "port-taken" || result === "refused") yield* journal.catchUp
        // Whatever is held now is what the records say.
        if (result === "done" || result === "lost") destinations.reached(record.id)
        return result
      })

      /** One look at a server that moves; true: look again. */
      const step = Effect.fnUntraced(function* (id: string) {
        const record = Option.getOrUndefined(yield* index.find(id))
        const move = yield* index.moveOf(id)
        if (record === undefined || !isUnderway(move) || move.phase === "arriving") {
          destinations.reached(id)
          return false
        }
        if (move.phase === "returning") yield* destinations.release(id)
        const result = yield* move.phase === "leaving" ? leave(record, move) : steps.comeBack(move)
        return result !== "done" && result !== "lost"
      })

      const drive = Effect.fnUntraced(function* (id: string) {
        const latch = Latch.makeUnsafe(false)
        latches.set(id, latch)
        while (true) {
          latch.closeUnsafe()
          const again = yield* step(id).pipe(
            locks.withLock(id),
            Effect.catch((error) =>
              Effect.as(Effect.logDebug(`the move of ${id} waits: ${error._tag}`), true)
            ),
            Effect.catchDefect((defect) =>
              Effect.as(Effect.logError(`the move of ${id} has failed, it is tried again`, defect), true)
            )
          )
          if (!again) return news.openUnsafe()
          yield* Effect.raceFirst(Effect.sleep(options.pause), latch.await)
        }
      })

      /** Begins with as many servers of a node as may move at a time. */
      const begin = Effect.fnUntraced(function* (node_id: string, asked_at: string) {
        const all = yield* index.moves
        const known = new Set(all.map((move) => move.server_id))
        let busy = all.filter((move) => isUnderway(move) && move.from_node === node_id).length
        for (const record of yield* index.onNode(node_id)) {
          if (busy >= options.movesPerNode) return
          if (known.has(record.id) || !isToLeave(record, asked_at)) continue
          if (migrationBlocker(record) !== undefined || migrationDelay(record) !== undefined) continue
          if ((yield* destinations.find(record)) === undefined) continue
          if (yield* locks.withLock(record.id)(steps.begin(record, randomUUID()))) busy += 1
          else yield* destinations.release(record.id)
        }
      })

      const look = Effect.fnUntraced(function* (fibers: FiberMap.FiberMap<string>) {
        yield* refresh
        for (const [node_id, asked_at] of asked) {
          const node = Option.getOrUndefined(yield* Effect.option(registry.get(node_id)))
          if (node?.drained === true && node.connected) yield* begin(node_id, asked_at)
        }
        for (const move of yield* index.moves) {
          if (move.phase !== "leaving" && move.phase !== "returning") continue
          yield* FiberMap.run(fibers, move.server_id, drive(move.server_id), { onlyIfMissing: true })
        }
      })

      yield* journal.follow((entries) =>
        Effect.sync(() => {
          for (const { change } of entries) {
            if (change.topic === "server:move" || change.topic === "node:evacuation") news.openUnsafe()
            if (change.topic === "node:evacuation") isStale = true
            latches.get(change.server_id)?.openUnsafe()
          }
        })
      )
      const hold = Effect.gen(function* () {
        const fibers = yield* FiberMap.make<string>()
        yield* Effect.addFinalizer(() => destinations.releaseAll)
        const round = Effect.gen(function* () {
          yield* news.close
          yield* look(fibers).pipe(
            Effect.catch((error) => Effect.logDebug(`moves wait: ${error.detail}`)),
            Effect.catchDefect((defect) => Effect.logError("moves cannot be looked after", defect))
          )
          const busy = asked.size > 0 || (yield* index.moves).some((move) => isUnderway(move))
          yield* Effect.raceFirst(Effect.sleep(busy ? options.pause : IDLE), news.await)
        })
        return yield* Effect.forever(round)
      })

      /** What was on its way to a node that is lost goes back to where its files are: that node can run it. */
      const turnBack = Effect.fnUntraced(function* (node_id: string) {
        for (const record of yield* index.onNode(node_id)) {
          if ((yield* index.originOf(node_id, record.id)) === undefined || isFinished(record.install))
            continue
          yield* lifecycle
            .refuseInstall(record.id, `node ${registry.nameOf(node_id)} is lost`)
            .pipe(Effect.retry(databaseRetrySchedule), locks.withLock(record.id))
        }
      })
      yield* registry.changes.pipe(
        Stream.filter((change) => change.kind === "lost" || change.kind === "given-up"),
        Stream.runForEach(({ node_id }) =>
          Effect.flatMap(leadership.isLeader, (mine) =>
            mine && !registry.isConnected(node_id) ? turnBack(node_id) : Effect.void
          )
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      const evacuate = Effect.fn("NodeDrainer.evacuate")(function* (node_id: string) {
        const asked_at = new Date(yield* Clock.currentTimeMillis).toISOString()
        yield* forgetFailures(node_id, moves.evacuate({ node_id, asked_at }))
      })
      const stay = Effect.fn("NodeDrainer.stay")((node_id: string) =>
        forgetFailures(node_id, moves.stay(node_id))
      )

      /** Changes what is to happen to a node, and lets go of what has failed before. */
      const forgetFailures = Effect.fnUntraced(function* (
        node_id: string,
        order: ReturnType<typeof moves.stay>
      ) {
        const failed = (yield* index.moves).filter(
          (move) => move.phase === "failed" && move.from_node === node_id
        )
        yield* store.write(
          Effect.gen(function* () {
            yield* order
            const transaction = yield* Transaction
            yield* transaction.append({ topic: "node:evacuation", server_id: "", payload: node_id }, "")
            for (const { server_id } of failed) {
              const record = Option.getOrUndefined(yield* servers.lock(server_id))
              const move = Option.getOrUndefined(yield* moves.find(server_id))
              if (record !== undefined && move?.phase === "failed") yield* records.forget(record)
            }
          })
        )
      })
      yield* refresh
      yield* leadership.whileLeader(hold)

      return NodeMigrations.of({
        evacuate,
        stay,
        progress: Effect.fnUntraced(function* (node_id: string) {
          if (isStale) yield* Effect.ignore(refresh)
          const asked_at = asked.get(node_id)
          if (asked_at === undefined) return undefined
          const all = yield* index.moves
          const coming = yield* Effect.forEach(
            all.filter((move) => move.phase === "arriving" && move.from_node === node_id),
            (move) => Effect.map(index.find(move.server_id), Option.toArray)
          )
          const elsewhere = coming.flat()
          const away = new Map<string, string>()
          for (const id of new Set([node_id, ...elsewhere.map((record) => record.node_id)])) {
            const why = yield* unavailableReason(id)
            if (why !== undefined) away.set(id, why)
          }
          return progressOf({
            node_id,
            here: yield* index.onNode(node_id),
            elsewhere,
            away,
            moves: new Map(all.map((move) => [move.server_id, move])),
            leaves: (record) => isToLeave(record, asked_at),
            homeless: destinations.homeless
          })
        })
      })
    })
  )
