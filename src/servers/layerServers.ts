import type { Duration } from "effect"
import { Effect, Layer } from "effect"
import { LiveFeed } from "../events/LiveFeed.ts"
import { ServerSummaries } from "../events/ServerSummaries.ts"
import { ServerExpiry } from "./controllers/Expiry.ts"
import { NodeDrainer } from "./controllers/NodeDrainer.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { Provisioner } from "./controllers/Provisioner.ts"
import { RolloutRunner } from "./controllers/RolloutRunner.ts"
import { ServerGarbageCollector } from "./controllers/ServerGarbageCollector.ts"
import { InstallProgresses } from "./index/InstallProgresses.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { ControlPlaneLive, NodeGateway } from "./NodeGateway.ts"
import { Rollouts } from "./Rollouts.ts"
import { CreationPriority } from "./records/CreationPriority.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"
import { ServerLocks } from "./records/ServerLocks.ts"
import { ServerManager } from "./ServerManager.ts"
import { StatsSampler } from "./StatsSampler.ts"
import { ServerAccessLayer } from "./serverAccess.ts"

export interface ServersOptions {
  /** Provisioning calls to one node at a time. Default: 64. */
  readonly callsPerNode?: number
  /** Delay before a call to a node is repeated; it doubles up to `retryCap`. Default: 200 ms. */
  readonly retryFrom?: Duration.Input
  /** Default: 30 s. */
  readonly retryCap?: Duration.Input
  /** Servers that leave one drained node at a time. Default: 2. */
  readonly migrationsPerNode?: number
  /** Between two attempts at a step of a migration whose condition does not hold yet. Default: 2 s. */
  readonly migrationPause?: Duration.Input
  /** Between two looks at a server of a rollout, besides its changes. Default: 2 s. */
  readonly rolloutPause?: Duration.Input
  /** How long a server of a rollout may wait for its node before it has failed. Default: 5 minutes. */
  readonly rolloutNodeTimeout?: Duration.Input
}

const summaries = Layer.effect(
  ServerSummaries,
  Effect.map(ServerIndex, ({ factsOf, latest, nameOf }) =>
    ServerSummaries.of({ find: latest, facts: factsOf, nameOf })
  )
)

/**
 * The servers: `ServerManager`, `NodeGateway` with the `ControlPlane` of the embedded daemon, the controllers, and the
 * summaries in events. Build it before requests are accepted: it first restores the reservations of existing servers.
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
