import { type Duration, Effect, Layer, Option } from "effect"
import { NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { inSlices } from "../../shared/work/slices.ts"
import { LiveFeed } from "../events/LiveFeed.ts"
import { ServerSummaries } from "../events/ServerSummaries.ts"
import { currentRestriction } from "../http/Principal.ts"
import { ServerAccess } from "../http/ServerAccess.ts"
import { DeletedServerRepo } from "../store/repos/DeletedServerRepo.ts"
import { Store } from "../store/Store.ts"
import { ServerExpiry } from "./controllers/Expiry.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { Provisioner } from "./controllers/Provisioner.ts"
import { InstallProgresses } from "./list/InstallProgresses.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { NodeDrainer } from "./migrations/NodeDrainer.ts"
import { ControlPlaneLive, NodeGateway } from "./NodeGateway.ts"
import { RolloutRunner } from "./rollouts/RolloutRunner.ts"
import { Rollouts } from "./rollouts/Rollouts.ts"
import { ServerManager } from "./ServerManager.ts"
import { CreationPriority } from "./state/CreationPriority.ts"
import { ServerGarbageCollector } from "./state/ServerGarbageCollector.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"
import { ServerLocks } from "./state/ServerLocks.ts"
import { StatsSampler } from "./stats.ts"

const ServerAccessLayer = Layer.effect(
  ServerAccess,
  Effect.gen(function* () {
    const deleted = yield* DeletedServerRepo
    const index = yield* ServerIndex
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
        return Option.isSome(yield* index.lookUpWithin(id, restriction))
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

export interface ServersOptions {
  /** Provisioning calls to one node at a time. Default: 64. */
  readonly callsPerNode?: number
  /** Delay before a call to a node is repeated, doubled up to `retryCap`. Default: 200 ms. */
  readonly retryFrom?: Duration.Input
  /** Default: 30 s. */
  readonly retryCap?: Duration.Input
  /** Servers that leave one drained node at a time. Default: 2. */
  readonly migrationsPerNode?: number
  /** Between two attempts at a migration step whose condition does not hold yet. Default: 2 s. */
  readonly migrationPause?: Duration.Input
  /** Between two looks at a server of a rollout, besides its changes. Default: 2 s. */
  readonly rolloutPause?: Duration.Input
  /** Time for which a server of a rollout may wait for its node. Default: 5 minutes. */
  readonly rolloutNodeTimeout?: Duration.Input
}

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
export const layerServers = (options: ServersOptions = {}) => {
  const retry = { retryFrom: options.retryFrom ?? "200 millis", retryCap: options.retryCap ?? "30 seconds" }
  const moving = {
    migrationsPerNode: options.migrationsPerNode ?? 2,
    pause: options.migrationPause ?? "2 seconds"
  }
  const rollouts = RolloutRunner({
    pause: options.rolloutPause ?? "2 seconds",
    nodeTimeout: options.rolloutNodeTimeout ?? "5 minutes"
  })
  return Layer.mergeAll(
    ControlPlaneLive,
    NodeDrainer(moving),
    ServerExpiry,
    Rollouts.layer,
    rollouts,
    ServerAccessLayer,
    StatsSampler,
    summaries
  ).pipe(
    Layer.provideMerge(NodeGateway.layer),
    Layer.provideMerge(NodeReconciler.layer),
    Layer.provideMerge(ServerManager.layer),
    Layer.provideMerge(Provisioner.layer({ callsPerNode: options.callsPerNode ?? 64, ...retry })),
    Layer.provideMerge(ServerLifecycle.layer),
    Layer.provideMerge(ServerGarbageCollector.layer(retry)),
    Layer.provideMerge(InstallProgresses.layer),
    Layer.provideMerge(
      Layer.mergeAll(ServerIndex.layer, ServerLocks.layer, CreationPriority.layer, LiveFeed.layer)
    )
  )
}
