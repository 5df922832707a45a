import { resolve } from "node:path"
import { Duration, Layer, Option } from "effect"
import { AuditLog } from "../audit/AuditLog.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { ReloadFeed, Reloads } from "../blueprints/Reloads.ts"
import { SoftwareStore } from "../blueprints/SoftwareStore.ts"
import { layerSources, layerUnlisted } from "../blueprints/sources/Sources.ts"
import type { ServiceSettings } from "../config/service.ts"
import { EventHub } from "../events/EventHub.ts"
import { Tickets } from "../events/Tickets.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { NodeKeys } from "../keys/NodeKeys.ts"
import type { ClientTls } from "../net/connectTimeoutClient.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { makeNodeNetworks } from "../nodes/remote/nodeNetworks.ts"
import { RemoteDaemons } from "../nodes/remote/RemoteDaemons.ts"
import { layerServers } from "../servers/layerServers.ts"
import { CrashesKept } from "../store/repos/CrashRepo.ts"
import { layerWebhooks } from "../webhooks/layerWebhooks.ts"
import { refuseOtherSecret, SecretLayer } from "./secretKey.ts"
import { takeVariable } from "./secretVariables.ts"
import { StoreLayer } from "./storage.ts"

/** The control plane without its transport: store, blueprints, nodes, servers, events, keys. */
export const ControlPlaneLayer = (settings: ServiceSettings, dataDir: string, tls: ClientTls = {}) =>
  // The hub comes after the servers: the read model applies a change before the change is published.
  Layer.mergeAll(
    EventHub.layer(),
    Tickets.layer(adminKeyOf(settings)),
    NodeKeys.layer,
    AuditLog.layer,
    Reloads.layer,
    layerWebhooks({
      ...(settings.webhooks === "" ? {} : { file: resolve(settings.webhooks) }),
      variable: takeVariable,
      allowPrivate: settings.webhookAllowPrivate
    }),
    RemoteDaemons.layer({
      ...tls,
      networks: makeNodeNetworks(settings.nodeNetworks),
      requireTls: settings.requireTls
    })
  ).pipe(
    Layer.provideMerge(layerServers()),
    Layer.provideMerge(LoadBalancer.layer(placementOptions(settings))),
    Layer.provideMerge(
      NodeRegistry.layer({
        heartbeatTimeout: Duration.seconds(settings.nodeHeartbeatTimeout),
        nodeLostAfter: Duration.seconds(settings.nodeLostAfter),
        tokenLifetime: Duration.hours(settings.nodeTokenHours)
      })
    ),
    Layer.provideMerge(Layer.mergeAll(Fleet.layer, DaemonClient.layer)),
    Layer.provideMerge(BlueprintStore.layer({ directory: resolve(settings.blueprintsDir) })),
    Layer.provideMerge(SoftwareStore.layer({ directory: resolve(settings.softwareDir) })),
    Layer.provideMerge(SourcesLayer(settings, dataDir)),
    Layer.provideMerge(ReloadFeed.layer),
    Layer.provideMerge(ApiKeys.layer(adminKeyOf(settings))),
    Layer.provideMerge(refuseOtherSecret),
    Layer.provideMerge(StoreLayer(settings, dataDir, { isService: true })),
    Layer.provide(Layer.succeed(CrashesKept, settings.crashesKeep)),
    Layer.provideMerge(SecretLayer(settings, dataDir))
  )

/** The git repositories that are synced into the definition folders, if a file lists some. */
const SourcesLayer = (settings: ServiceSettings, dataDir: string) => {
  const folders = { blueprints: resolve(settings.blueprintsDir), software: resolve(settings.softwareDir) }
  return settings.blueprintSources === ""
    ? layerUnlisted({ dataDir, folders })
    : layerSources({
        file: resolve(settings.blueprintSources),
        dataDir,
        folders,
        maxBytes: settings.sourcesMaxMib * 1_048_576,
        environment: process.env,
        variable: takeVariable
      })
}

const placementOptions = (settings: ServiceSettings) => ({
  strategy: settings.placement,
  memoryOvercommit: settings.overcommitMemory,
  diskOvercommit: settings.overcommitDisk
})

/** Returns the options with the admin key of the settings. */
export const adminKeyOf = (settings: ServiceSettings) =>
  Option.match(settings.adminKey, { onNone: () => ({}), onSome: (adminKey) => ({ adminKey }) })
