/**
 * The daemon of a node: its servers, and its link to the control plane, of which it imports nothing but the contract.
 * Read first: `nodeHost.ts` (the host), `makeDaemon.ts` (what the control plane calls), `instances/Instances.ts`.
 */
import { randomUUID } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { Context, Effect, Layer, Random, type Scope } from "effect"
import type { NodeAllocation } from "../contract/domain/Allocation.ts"
import type { NodeId, ServerId } from "../contract/domain/Id.ts"
import type { Capacity } from "../contract/domain/Node.ts"
import type { UnknownServer } from "../contract/domain/NodeMessages.ts"
import { ControlPlane, type ControlPlaneError } from "../contract/nodeApi/ControlPlaneApi.ts"
import type { Daemon } from "../contract/nodeApi/Daemon.ts"
import { InstanceFiles } from "./files/InstanceFiles.ts"
import { basesInUse } from "./files/treeRecord.ts"
import { capacityOf, hostInfo, loadOf } from "./host/hostInfo.ts"
import { Installer } from "./install/Installer.ts"
import { DISK_RESERVE, Instances, type InstancesTuning } from "./instances/Instances.ts"
import { besideServers, type Departure } from "./instances/orphanedServers.ts"
import { makeDaemon } from "./makeDaemon.ts"
import { foldersOf, type NodeHostOptions, nodeHost } from "./nodeHost.ts"
import { Runtime } from "./runtime/Runtime.ts"
import { makeUplink } from "./uplink/uplink.ts"

export interface NodeDaemonOptions extends NodeHostOptions, InstancesTuning {
  readonly name: string
  readonly location: string
  /** The address at which the control plane calls the daemon; any text for an embedded one. */
  readonly url: string
  readonly version: string
  readonly allocations: ReadonlyArray<NodeAllocation>
  /** Bytes a second that backups read of the files of servers; default 0: no limit. */
  readonly backupRate?: number
  /** Folders below which targets of backups may be (spec 12.6). Default: none. */
  readonly backupFolders?: ReadonlyArray<string>
  /** The capacity for servers. Default: the host's. */
  readonly capacity?: Partial<Capacity>
  /** Runs before the first registration, so that the control plane can call an embedded daemon from then on. */
  readonly attach?: (node_id: NodeId, daemon: Daemon) => Effect.Effect<void, never, Scope.Scope>
  /** Default 10. */
  readonly heartbeatSeconds?: number
  /** The fate of servers on shutdown: `stop` them, or `keep` them for the next start. */
  readonly onShutdown: "keep" | "stop"
}

/** The longest pause after a failed heartbeat, in ms. */
const MISSED_PAUSE = 1000
/** The time for the last reports at shutdown, in ms. */
const LAST_REPORTS = 2000

const backupSettings = (options: NodeDaemonOptions) => ({
  own: foldersOf(options).backupsDir,
  allowed: options.backupFolders ?? [],
  rate: options.backupRate ?? 0,
  reserve: options.diskReserve ?? DISK_RESERVE
})

export class NodeDaemon extends Context.Service<
  NodeDaemon,
  {
    readonly node_id: NodeId
    /** Identifies this start of the daemon; reports of an earlier start are refused. */
    readonly boot_id: string
    readonly daemon: Daemon
    readonly disconnect: Effect.Effect<void, ControlPlaneError>
  }
>()("muster/daemon/NodeDaemon") {
  static readonly layerNoDeps = (options: NodeDaemonOptions) =>
    Layer.effect(
      NodeDaemon,
      Effect.gen(function* () {
        const { dataDir, node_id } = options
        const controlPlane = yield* ControlPlane
        const instances = yield* Instances
        const installer = yield* Installer
        const files = yield* InstanceFiles
        const runtime = yield* Runtime
        const scope = yield* Effect.scope
        const boot_id = randomUUID()
        const heartbeatSeconds = options.heartbeatSeconds ?? 10

        const offer = Effect.gen(function* () {
          const instance_files = yield* files.strategy
          const { isolation, kinds, lacksUids, notEnforced } = yield* runtime.offer
          const known = {
            isolation,
            ...(notEnforced.length === 0 ? {} : { not_enforced: notEnforced }),
            ...(lacksUids ? { lacks_uids: true as const } : {}),
            ...(instance_files === undefined ? {} : { instance_files })
          }
          return { runtimes: kinds, known }
        })
        let offered = yield* offer
        /** The migrations by which the servers of the last registration arrived. */
        let arrivals: ReadonlyMap<ServerId, string | undefined> = new Map()
        /** The deleted servers that the last registration had. */
        let listedKept: ReadonlySet<ServerId> = new Set()
        const registration = Effect.gen(function* () {
          const capacity = yield* capacityOf(dataDir, options.capacity ?? {})
          offered = yield* offer
          const servers = instances.list()
          arrivals = new Map(servers.map(({ id }) => [id, instances.arrivalOf(id)]))
          const kept = instances.kept()
          listedKept = new Set(kept)
          return {
            id: node_id,
            name: options.name,
            location: options.location,
            url: options.url,
            version: options.version,
            boot_id,
            allocations: options.allocations,
            capacity,
            runtimes: offered.runtimes,
            system: hostInfo(offered.known),
            heartbeat_seconds: heartbeatSeconds,
            servers,
            kept
          }
        })
        const removeServer = (id: ServerId, departure?: Departure | "kept") =>
          Effect.suspend(() => {
            // The server was migrated back or undeleted in the meantime.
            if (instances.arrivalOf(id) !== arrivals.get(id)) return Effect.void
            if (listedKept.has(id) && !instances.isKept(id)) return Effect.void
            return Effect.catch(instances.remove(id, departure), (error) =>
              Effect.logError(`the server cannot be removed: ${error.detail}`).pipe(
                Effect.annotateLogs({ server_id: id })
              )
            )
          })
        const departure = ({ node_id }: UnknownServer): Departure =>
          node_id === undefined ? { why: "unknown" } : { why: "elsewhere", node_id }
        const uplink = yield* makeUplink({
          controlPlane,
          registration,
          // Forked: the fiber that registers may be that of a server that is removed here.
          onRegistered: ({ delete: deleted, keep = [], stopped = [], unknown = [] }) => {
            instances.beginStarts([...deleted, ...keep, ...stopped, ...unknown.map(({ id }) => id)])
            return Effect.all(
              [
                Effect.forEach(deleted, (id) => removeServer(id), { concurrency: 8 }),
                Effect.forEach(keep, (id) => removeServer(id, "kept"), { concurrency: 8 }),
                Effect.forEach(unknown, (server) => removeServer(server.id, departure(server)), {
                  concurrency: "unbounded"
                })
              ],
              { concurrency: "unbounded" }
            ).pipe(Effect.forkIn(scope), Effect.asVoid)
          }
        })
        const daemon = yield* makeDaemon({
          version: options.version,
          instances,
          installer,
          files,
          backups: backupSettings(options),
          place: options,
          register: Effect.asVoid(Effect.forkIn(uplink.register, scope)),
          system: Effect.map(offer, ({ known }) => hostInfo(known))
        })
        if (options.attach !== undefined) yield* options.attach(node_id, daemon)
        yield* instances.connect(uplink)

        /** Sends a heartbeat; returns whether the control plane responded. */
        const heartbeat = Effect.gen(function* () {
          const responded = yield* uplink.heartbeat(yield* loadOf(dataDir))
          // An engine started or stopped, or a full disk has room again.
          if (responded && !isDeepStrictEqual(yield* offer, offered)) yield* uplink.register
          return responded
        }).pipe(
          Effect.catchTag("IoError", (error) =>
            Effect.as(Effect.logWarning(`heartbeat failed: ${error.message}`), true)
          )
        )
        const pause = heartbeatSeconds * 1000
        const heartbeats = Effect.gen(function* () {
          let responded = true
          while (true) {
            // After an outage, nodes reconnect soon, and not all at the same moment.
            yield* Effect.sleep(
              responded ? pause : Math.min(pause, MISSED_PAUSE * (0.5 + (yield* Random.next)))
            )
            responded = yield* heartbeat
          }
        })
        yield* Effect.forkScoped(Effect.andThen(uplink.register, heartbeats))

        if (options.onShutdown === "stop") {
          const unsent = Effect.sync(() => instances.list().some((server) => server.unsent_reports > 0))
          const sent = unsent.pipe(Effect.delay(20), Effect.repeat({ while: (waiting) => waiting }))
          yield* Effect.addFinalizer(() =>
            Effect.andThen(instances.stopAll, Effect.timeoutOption(sent, LAST_REPORTS))
          )
        }

        return NodeDaemon.of({
          node_id,
          boot_id,
          daemon,
          disconnect: controlPlane.disconnect(node_id, boot_id)
        })
      })
    )

  /** The daemon on its {@link nodeHost}. */
  static readonly layerOnHost = (settings: NodeDaemonOptions) => {
    const { baseDir, dataDir, lostDir, serversDir, volumesDir } = foldersOf(settings)
    const { allowedMounts, node_id } = settings
    // The order matters: folders move from the first to the second.
    const used = Effect.forEach([serversDir, besideServers(serversDir), lostDir], basesInUse).pipe(
      Effect.map((found) => new Set(found.flatMap((names) => [...names])))
    )
    return NodeDaemon.layerNoDeps({ ...settings, dataDir }).pipe(
      Layer.provideMerge(
        Instances.layer({
          ...settings,
          serversDir,
          lostDir,
          sources: { node_id, dataDir, volumesDir, allowedMounts }
        })
      ),
      Layer.provideMerge(Installer.layer({ baseDir, used }))
    )
  }

  static readonly layer = (options: NodeDaemonOptions) =>
    Layer.provideMerge(NodeDaemon.layerOnHost(options), nodeHost(options))
}
