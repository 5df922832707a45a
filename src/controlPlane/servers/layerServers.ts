import { Effect, Layer } from "effect"
import { NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { inSlices } from "../../shared/work/slices.ts"
import { LiveFeed, ServerSummaries } from "../events/LiveFeed.ts"
import { currentRestriction, ServerAccess } from "../http/Principal.ts"
import { DeletedServerRepo, KeptServerRepo } from "../store/repos/DeletedServerRepo.ts"
import { Store } from "../store/Store.ts"
import { KeptServerPurges, ServerExpiry } from "./controllers/Expiry.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { Provisioner } from "./controllers/Provisioner.ts"
import { KeptServers } from "./kept/KeptServers.ts"
import { InstallProgresses } from "./list/InstallProgresses.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { NodeDrainer } from "./migrations/NodeDrainer.ts"
import { ControlPlaneLive, NodeGateway } from "./NodeGateway.ts"
import { RolloutRunner } from "./rollouts/RolloutRunner.ts"
import { Rollouts } from "./rollouts/Rollouts.ts"
import { ServerManager } from "./ServerManager.ts"
import { ServerGarbageCollector } from "./state/ServerGarbageCollector.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"
import { CreationPriority, ServerLocks } from "./state/ServersOptions.ts"
import { StatsSampler } from "./stats.ts"

const ServerAccessLayer = Layer.effect(
  ServerAccess,
  Effect.gen(function* () {
    const deleted = yield* DeletedServerRepo
    const index = yield* ServerIndex
    const kept = yield* KeptServerRepo
    const store = yield* Store

    const ends = Effect.fnUntraced(function* (id: ServerId) {
      const restriction = yield* currentRestriction
      if (restriction === undefined) return yield* Effect.never
      const changed = yield* index.changeOf(id)
      while (true) {
        changed.closeUnsafe()
        const record = index.get(id)
        if (record === undefined || !admits(restriction, record)) return
        yield* changed.await
      }
    }, Effect.scoped)

    return ServerAccess.of({
      mayRead: Effect.fnUntraced(function* (id) {
        const restriction = yield* currentRestriction
        if (restriction === undefined) return true
        if ((yield* index.lookUpWithin(id, restriction)) !== undefined) return true
        const found = yield* store.read(kept.find(id))
        return found !== undefined && admits(restriction, found.record)
      }),
      explained: Effect.fnUntraced(function* (text, error) {
        const restriction = yield* currentRestriction
        const found = yield* store
          .read(deleted.named(text))
          .pipe(
            Effect.catch(({ detail }) =>
              Effect.as(Effect.logDebug(`the end of a server was not read: ${detail}`), [])
            )
          )
        const end = found.find((server) => admits(restriction, server))
        return end === undefined ? error : NotFound.deletedServer(text, end)
      }),
      ends,
      countOn: Effect.fnUntraced(function* (node_id) {
        const restriction = yield* currentRestriction
        if (restriction === undefined) return undefined
        const records = yield* index.onNode(node_id)
        return yield* inSlices(function* () {
          let count = 0
          for (const record of records) {
            if (admits(restriction, record)) count += 1
            yield
          }
          return count
        })
      }),
      stuckOn: Effect.fnUntraced(function* (node_id) {
        const restriction = yield* currentRestriction
        return (yield* index.onNode(node_id)).flatMap((record) => {
          const isStuck = !record.definition.save && record.install.phase === "failed"
          return isStuck && (restriction === undefined || admits(restriction, record)) ? [record.id] : []
        })
      })
    })
  })
)

const summaries = Layer.effect(
  ServerSummaries,
  Effect.map(ServerIndex, ({ factsOf, latest, nameOf }) =>
    ServerSummaries.of({ find: latest, facts: factsOf, nameOf })
  )
)

/**
 * The servers with their controllers, gateways and summaries in events. Build it before requests are accepted: it
 * restores reservations first.
 */
export const layerServers = Layer.mergeAll(
  ControlPlaneLive,
  NodeDrainer,
  ServerExpiry,
  KeptServerPurges,
  Rollouts.layer,
  RolloutRunner,
  ServerAccessLayer,
  StatsSampler,
  summaries
).pipe(
  Layer.provideMerge(NodeGateway.layer),
  Layer.provideMerge(NodeReconciler.layer),
  Layer.provideMerge(KeptServers.layer),
  Layer.provideMerge(ServerManager.layer),
  Layer.provideMerge(Provisioner.layer),
  Layer.provideMerge(ServerLifecycle.layer),
  Layer.provideMerge(ServerGarbageCollector.layer),
  Layer.provideMerge(InstallProgresses.layer),
  Layer.provideMerge(
    Layer.mergeAll(ServerIndex.layer, ServerLocks.layer, CreationPriority.layer, LiveFeed.layer)
  )
)
