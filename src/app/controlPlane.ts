import { resolve } from "node:path"
import { Duration, Layer, Option } from "effect"
import { AuditLog } from "../controlPlane/audit/AuditLog.ts"
import { layerBackups } from "../controlPlane/backups/layerBackups.ts"
import { BlueprintStore, SoftwareStore } from "../controlPlane/blueprints/BlueprintStore.ts"
import { ReloadFeed, Reloads } from "../controlPlane/blueprints/Reloads.ts"
import { layerSources, layerUnlisted } from "../controlPlane/blueprints/sources/Sources.ts"
import { EventHub } from "../controlPlane/events/EventHub.ts"
import { Tickets } from "../controlPlane/events/Tickets.ts"
import { EndedUploads } from "../controlPlane/files/runners.ts"
import { FailedLogins } from "../controlPlane/http/FailedLogins.ts"
import { ApiKeys } from "../controlPlane/keys/ApiKeys.ts"
import { NodeKeys } from "../controlPlane/keys/NodeKeys.ts"
import { DaemonClient } from "../controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../controlPlane/nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../controlPlane/nodes/LoadBalancer.ts"
import { NodeRegistry } from "../controlPlane/nodes/NodeRegistry.ts"
import { RemoteDaemons } from "../controlPlane/nodes/remote/RemoteDaemons.ts"
import { makeNodeNetworks } from "../controlPlane/nodes/remote/remoteSocket.ts"
import { layerSchedules } from "../controlPlane/schedules/ScheduleLeader.ts"
import { layerServers } from "../controlPlane/servers/layerServers.ts"
import { SftpPasswords } from "../controlPlane/sftp/logins.ts"
import { SftpHostKey } from "../controlPlane/sftp/SftpHostKey.ts"
import { CrashesKept } from "../controlPlane/store/repos/CrashRepo.ts"
import { KeepDeleted } from "../controlPlane/store/repos/DeletedServerRepo.ts"
import { layerWebhooks } from "../controlPlane/webhooks/WebhooksFile.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import type { ClientTls } from "../shared/net/connectTimeoutClient.ts"
import { refuseOtherSecret, SecretLayer, takeVariable } from "./secretKey.ts"
import { StoreLayer } from "./storage.ts"

/** The control plane without its transport: store, blueprints, nodes, servers, events, keys. */
export const ControlPlaneLayer = (settings: ServiceSettings, dataDir: string, tls: ClientTls = {}) =>
  // The hub comes after the servers: the read model applies a change before the change is published.
  Layer.mergeAll(
    EventHub.layer(),
    Tickets.layer(adminKeyOf(settings)),
    NodeKeys.layer,
    AuditLog.layer,
    EndedUploads,
    SftpHostKey.layer,
    SftpPasswords.layer,
    FailedLogins.layer(),
    Reloads.layer,
    layerSchedules.pipe(
      Layer.provideMerge(
        layerWebhooks({
          ...(settings.webhooks === "" ? {} : { file: resolve(settings.webhooks) }),
          variable: takeVariable,
          allowPrivate: settings.webhookAllowPrivate
        })
      )
    ),
    RemoteDaemons.layer({
      ...tls,
      networks: makeNodeNetworks(settings.nodeNetworks),
      requireTls: settings.requireTls
    })
  ).pipe(
    Layer.provideMerge(
      layerBackups({
        ...(settings.backupTargets === "" ? {} : { file: resolve(settings.backupTargets) }),
        variable: takeVariable,
        allowPrivate: settings.backupAllowPrivate
      })
    ),
    Layer.provideMerge(layerServers),
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
    Layer.provideMerge(Layer.succeed(KeepDeleted, settings.keepDeleted)),
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

export const adminKeyOf = (settings: ServiceSettings) =>
  Option.match(settings.adminKey, { onNone: () => ({}), onSome: (adminKey) => ({ adminKey }) })
