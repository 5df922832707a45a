import { Context, Effect, FiberMap, Layer, Option, Stream } from "effect"
import type { InvalidRequest, Unavailable } from "../../domain/errors.ts"
import type { DaemonServer, Registration, RegistrationAnswer } from "../../domain/NodeMessages.ts"
import { type NodeChange, NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { Leadership } from "../../store/Leadership.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { makeKeyedLock } from "../../work/KeyedLock.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { ServerLifecycle } from "../records/ServerLifecycle.ts"
import { changesNothing, isFinished, onSnapshot } from "../records/transitions.ts"
import { makeMigrationSteps } from "./migrationSteps.ts"
import { recentRemovals, sortOrphans, warnOfUnknown } from "./orphans.ts"
import { Provisioner } from "./Provisioner.ts"

/** Views of one registration that are taken over at a time; they share the commits of the store. */
const CONCURRENCY = 64

/**
 * While a replica takes over what a node says at its registration, the one that does the duties need not ask the node
 * for the same.
 */
const REGISTRATION = "1 second"

/** Servers of one node that it is made to register for; beyond that its next registration says it. */
const MENTIONED = 10_000

/**
 * Keeps records and nodes in step when nodes come and go (node-protocol, "When something breaks"): one that
 * registers, at any replica, says what it has; the servers of one that is silent are `unknown`; those of one that is
 * lost, and that are not saved, are given up: background duties.
 */
export class NodeReconciler extends Context.Service<
  NodeReconciler,
  {
    /**
     * Registers a node and takes over what it says of its servers. The answer names those that are not to be there: the
     * rows say so, and a node has nothing of a server before its record is there. `delete`: those that were deleted, and
     * whose deletion it has not confirmed. `unknown`: the others: the records may be older than they are.
     */
    register(registration: Registration): Effect.Effect<RegistrationAnswer, InvalidRequest | Unavailable>
    /** Whether a boot of a node mentions this server, which is not known, for the first time. */
    isNews(node_id: string, boot_id: string, server_id: string): boolean
  }
>()("muster/servers/NodeReconciler") {
  static readonly layer = Layer.effect(
    NodeReconciler,
    Effect.gen(function* () {
      const leadership = yield* Leadership
      const index = yield* ServerIndex
      const moves = yield* MigrationRepo
      const store = yield* Store
      const lifecycle = yield* ServerLifecycle
      const provisioner = yield* Provisioner
      const nodeRepo = yield* NodeRepo
      const registry = yield* NodeRegistry
      /** A registration and the news of the same node's coming and going are dealt with one after another. */
      const nodes = makeKeyedLock()
      const removals = yield* recentRemovals
      const { letGo } = yield* makeMigrationSteps

      /** By node: servers that are not known, and that its present boot has mentioned. */
      const mentioned = new Map<string, { readonly boot_id: string; readonly servers: Set<string> }>()
      const isNews = (node_id: string, boot_id: string, server_id: string) => {
        const before = mentioned.get(node_id)
        const { servers } = before?.boot_id === boot_id ? before : { servers: new Set<string>() }
        mentioned.set(node_id, { boot_id, servers })
        if (servers.has(server_id) || servers.size >= MENTIONED) return false
        servers.add(server_id)
        return true
      }

      const register = Effect.fn("NodeReconciler.register")(function* (registration: Registration) {
        const node_id = registration.id
        const listed = registration.servers.map((server) => server.id)
        // The reports of a new boot are let in once it is registered: one that is applied after this is newer than
        // the list. Those of the same boot may have been all the time: then the list proves nothing.
        const sameBoot = yield* registry.checkBoot(node_id, registration.boot_id).pipe(
          Effect.as(true),
          Effect.catchTag("RegistrationRequired", () => Effect.succeed(false))
        )
        const sequences = yield* lifecycle.sequences(node_id, listed)
        const { token } = yield* registry.register(registration)
        const suspects: Array<string> = []
        const takeOver = Effect.fnUntraced(function* (view: DaemonServer) {
          const sequence = sequences.get(view.id)
          const record = Option.getOrUndefined(yield* index.find(view.id))
          if (view.held === true) yield* letGo(node_id, view.id)
          if (sequence === undefined || (record !== undefined && changesNothing(onSnapshot(record, view))))
            return
          if (sameBoot) suspects.push(view.id)
          else yield* lifecycle.observe(node_id, view, sequence)
        })
        yield* Effect.forEach(registration.servers, takeOver, { concurrency: CONCURRENCY, discard: true })
        const has = new Set(listed)
        for (const record of yield* index.onNode(node_id)) {
          if (!has.has(record.id) && isFinished(record.install)) suspects.push(record.id)
        }
        yield* lifecycle.markForVerification(suspects)
        yield* provisioner.wakeNode(node_id)
        const standings = yield* store.read(moves.standings(node_id, listed))
        const orphans = sortOrphans({ node_id, listed, standings, removals })
        yield* warnOfUnknown(node_id, orphans.unknown)
        for (const { id } of orphans.unknown) isNews(node_id, registration.boot_id, id)
        return { token, ...orphans }
      }, mayUseReserve)

      const lost = Effect.fnUntraced(function* (node_id: string) {
        if (registry.isConnected(node_id)) return
        const records = yield* index.onNode(node_id)
        const ids = records.filter((record) => record.status !== "unknown").map((record) => record.id)
        if (ids.length === 0) return
        yield* Effect.logWarning(`node ${node_id} is not heard any more: ${ids.length} servers are unknown`)
        yield* lifecycle.silent(node_id, ids)
      })

      const givenUp = Effect.fnUntraced(function* (node_id: string) {
        if (registry.isConnected(node_id)) return
        const records = yield* index.onNode(node_id)
        const ids = records.filter((record) => !record.definition.save).map((record) => record.id)
        if (ids.length === 0) return
        yield* Effect.logWarning(
          `node ${node_id} is lost: ${ids.length} servers that are not saved are given up`
        )
        yield* lifecycle.giveUp(node_id, ids)
      })

      const registrations = yield* FiberMap.make<string>()
      const connected = (node_id: string) =>
        leadership.isSingle
          ? provisioner.wakeNode(node_id)
          : Effect.asVoid(
              FiberMap.run(registrations, node_id, Effect.delay(provisioner.wakeNode(node_id), REGISTRATION))
            )
      const deal = (node_id: string, kind: NodeChange["kind"]) => {
        const work = kind === "connected" ? connected : kind === "lost" ? lost : givenUp
        return work(node_id).pipe(
          Effect.tapError((error) => Effect.logWarning(`node ${node_id}, ${kind}: ${error.detail}`)),
          Effect.retry(databaseRetrySchedule),
          nodes.withLock(node_id),
          Effect.catchCause((cause) => Effect.logError(`node ${node_id}, ${kind}: given up`, cause))
        )
      }
      yield* registry.changes.pipe(
        Stream.runForEach(({ node_id, kind }) =>
          Effect.flatMap(leadership.isLeader, (mine) => (mine ? deal(node_id, kind) : Effect.void))
        ),
        Effect.forkScoped({ startImmediately: true })
      )
      // What whoever did it before may not have come to.
      yield* leadership.whileLeader(
        Effect.gen(function* () {
          if (leadership.isSingle) return
          for (const { gone, id } of yield* Effect.orDie(
            Effect.retry(store.read(nodeRepo.all), databaseRetrySchedule)
          )) {
            if (gone === null) continue
            yield* deal(id, "lost")
            if (gone === "given-up") yield* deal(id, "given-up")
          }
        })
      )

      return NodeReconciler.of({
        isNews,
        register: (registration) => nodes.withLock(registration.id)(register(registration))
      })
    })
  )
}
