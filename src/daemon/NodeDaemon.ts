import { randomUUID } from "node:crypto"
import { join, resolve } from "node:path"
import { Context, Effect, Layer, Random, type Scope } from "effect"
import { ControlPlane, type ControlPlaneError } from "../api/ControlPlane.ts"
import type { Daemon } from "../api/Daemon.ts"
import type { NodeAllocation } from "../domain/Allocation.ts"
import type { Capacity } from "../domain/Node.ts"
import type { UnknownServer } from "../domain/NodeMessages.ts"
import { makeUplink } from "./controlPlane/uplink.ts"
import { InstanceFiles } from "./files/InstanceFiles.ts"
import type { StorageChoice } from "./files/storageProbe.ts"
import { basesInUse } from "./files/treeRecord.ts"
import { claimDataFolder, FOLDERS } from "./host/dataFolder.ts"
import { capacityOf, hostInfo, loadOf } from "./host/hostInfo.ts"
import { Installer } from "./install/Installer.ts"
import { Instances } from "./instances/Instances.ts"
import { besideServers, type Departure } from "./instances/orphanedServers.ts"
import { makeDaemon } from "./makeDaemon.ts"
import { RuntimeByServer } from "./RuntimeByServer.ts"
import { containerEnv } from "./runtime/childEnv.ts"
import { DockerRuntime, type DockerRuntimeOptions } from "./runtime/docker/DockerRuntime.ts"
import { DEFAULT_UIDS, type IsolationOptions } from "./runtime/isolation.ts"
import { ProcessRuntime } from "./runtime/ProcessRuntime.ts"
import { Runtime } from "./runtime/Runtime.ts"

/** Settings of one node's daemon. */
export interface NodeDaemonOptions {
  readonly node_id: string
  readonly name: string
  readonly location: string
  /** Where the control plane reaches it; any text for an embedded one. */
  readonly url: string
  readonly version: string
  /** Folder of the daemon's own: `base`, `servers`, `volumes`, and what `copy` entries name. */
  readonly data_dir: string
  readonly allocations: ReadonlyArray<NodeAllocation>
  /** What the machine offers, where that is not all it has. */
  readonly capacity?: Partial<Capacity>
  /** Host folders that blueprints may mount. */
  readonly allowed_mounts: ReadonlyArray<string>
  /** How instances are made; default: the best that works. */
  readonly instance_files?: StorageChoice
  /** Whether anything may be mounted, where that works. Default true. */
  readonly mounts?: boolean
  /** Seconds between two measurements of what servers have written, where they have a limit. Default 30. */
  readonly disk_check_seconds?: number
  /** Environment of the service: `PATH`, `LANG`, `TZ` and what `pass_env` names are handed on. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Names of variables, or beginnings such as `JAVA_*`, for servers and install scripts. */
  readonly pass_env: ReadonlyArray<string>
  /** Where cgroup v2 groups can be made; absent: found out. */
  readonly cgroup_root?: string
  /** How plain processes are isolated. Default: as well as the machine allows. */
  readonly isolation?: Partial<Omit<IsolationOptions, "data_dir">>
  /** The engine that servers with images run in; absent: plain processes only. */
  readonly docker?: Omit<DockerRuntimeOptions, "node" | "env">
  /** Run before the first registration, so that the control plane can reach an embedded daemon from then on. */
  readonly attach?: (node_id: string, daemon: Daemon) => Effect.Effect<void, never, Scope.Scope>
  /** Default 10. */
  readonly heartbeat_seconds?: number
  /** What becomes of the servers when the service ends: they run on and are adopted at the next start, or stop. */
  readonly on_shutdown: "keep" | "stop"
  /** How long servers may take to stop, with `on_shutdown: "stop"`. Default 30. */
  readonly shutdown_wait_seconds?: number
}

/** Pause after a heartbeat that did not get through, in ms, more or less. */
const MISSED = 1000
/** How long reports of the last stops are waited for when the service ends, in ms. */
const LAST_REPORTS = 2000

/** One node: its servers, and its connection to the control plane. */
export class NodeDaemon extends Context.Service<
  NodeDaemon,
  {
    readonly node_id: string
    /** Names this start of the daemon; reports of an earlier one are refused. */
    readonly boot_id: string
    readonly daemon: Daemon
    /** Says good-bye for good: not for a restart, after which the node is there again. */
    readonly disconnect: Effect.Effect<void, ControlPlaneError>
  }
>()("muster/daemon/NodeDaemon") {
  /** With a runtime from outside. */
  static readonly layerNoDeps = (options: NodeDaemonOptions) =>
    Layer.effect(
      NodeDaemon,
      Effect.gen(function* () {
        const { data_dir, node_id } = options
        const control_plane = yield* ControlPlane
        const instances = yield* Instances
        const installer = yield* Installer
        const files = yield* InstanceFiles
        const runtime = yield* Runtime
        const scope = yield* Effect.scope
        const boot_id = randomUUID()
        const heartbeat_seconds = options.heartbeat_seconds ?? 10

        let offered = yield* runtime.kinds
        /** The moves by which the servers came here that the last registration has named. */
        let listed: ReadonlyMap<string, string | undefined> = new Map()
        const registration = Effect.gen(function* () {
          const capacity = yield* capacityOf(data_dir, options.capacity ?? {})
          offered = yield* runtime.kinds
          const servers = instances.list()
          listed = new Map(servers.map(({ id }) => [id, instances.arrivalOf(id)]))
          return {
            id: node_id,
            name: options.name,
            location: options.location,
            url: options.url,
            version: options.version,
            boot_id,
            allocations: options.allocations,
            capacity,
            runtimes: offered,
            system: hostInfo({ instance_files: files.strategy, isolation: yield* runtime.isolation }),
            heartbeat_seconds,
            servers
          }
        })
        const removeOne = (id: string, departure?: Departure) =>
          Effect.suspend(() => {
            // It has come here since by another move.
            if (instances.arrivalOf(id) !== listed.get(id)) return Effect.void
            return Effect.catch(instances.remove(id, departure), (error) =>
              Effect.logError(`server ${id} cannot be removed: ${error.detail}`)
            )
          })
        const departure = ({ node_id }: UnknownServer): Departure =>
          node_id === undefined ? { why: "unknown" } : { why: "elsewhere", node_id }
        const uplink = yield* makeUplink({
          control_plane,
          registration,
          // In a fiber of its own: the one that registers may be a server's that is about to be removed.
          onRegistered: ({ delete: deleted, unknown = [] }) =>
            Effect.all(
              [
                Effect.forEach(deleted, (id) => removeOne(id), { concurrency: 8 }),
                // They stop at the same time.
                Effect.forEach(unknown, (server) => removeOne(server.id, departure(server)), {
                  concurrency: "unbounded"
                })
              ],
              { concurrency: "unbounded" }
            ).pipe(Effect.forkIn(scope), Effect.asVoid)
        })
        const daemon = yield* makeDaemon({
          version: options.version,
          instances,
          installer,
          files,
          place: options,
          runtime
        })
        if (options.attach !== undefined) yield* options.attach(node_id, daemon)
        yield* instances.connect(uplink)

        /** Answers whether the control plane was there. */
        const beat = Effect.gen(function* () {
          const heard = yield* uplink.heartbeat(yield* loadOf(data_dir))
          // An engine came up or went away.
          if (heard && (yield* runtime.kinds).join() !== offered.join()) yield* uplink.register
          return heard
        }).pipe(
          Effect.catchTag("IoError", (error) =>
            Effect.as(Effect.logWarning(`heartbeat: ${error.message}`), true)
          )
        )
        const pause = heartbeat_seconds * 1000
        const beats = Effect.gen(function* () {
          let heard = true
          while (true) {
            // One that comes back finds its nodes soon, and not all in the same moment.
            yield* Effect.sleep(heard ? pause : Math.min(pause, MISSED * (0.5 + (yield* Random.next))))
            heard = yield* beat
          }
        })
        yield* Effect.forkScoped(Effect.andThen(uplink.register, beats))

        if (options.on_shutdown === "stop") {
          const wait = options.shutdown_wait_seconds ?? 30
          const unsent = Effect.sync(() => instances.list().some((server) => server.unsent_reports > 0))
          const sent = unsent.pipe(Effect.delay(20), Effect.repeat({ while: (waiting) => waiting }))
          yield* Effect.addFinalizer(() =>
            Effect.andThen(instances.stopAll(wait), Effect.timeoutOption(sent, LAST_REPORTS))
          )
        }

        return NodeDaemon.of({
          node_id,
          boot_id,
          daemon,
          disconnect: control_plane.disconnect(node_id, boot_id)
        })
      })
    )

  /** A node with its runtimes; needs the control plane only. */
  static readonly layer = (given: NodeDaemonOptions) => {
    const data_dir = resolve(given.data_dir)
    const options = { ...given, data_dir }
    const { allowed_mounts, cgroup_root, docker, environment, node_id, pass_env } = options
    const processes = ProcessRuntime.layer({
      node: `${node_id}@${data_dir}`,
      environment,
      pass_env,
      beside_containers: docker !== undefined,
      isolation: {
        mode: "auto",
        uids: DEFAULT_UIDS,
        hidden: [],
        ...options.isolation,
        data_dir
      },
      ...(cgroup_root === undefined ? {} : { cgroup_root })
    })
    const [base_dir, servers_dir] = [join(data_dir, FOLDERS.base), join(data_dir, FOLDERS.servers)]
    const lost_dir = join(data_dir, FOLDERS.lost)
    // In this order: folders go from there to here.
    const used = Effect.forEach([servers_dir, besideServers(servers_dir), lost_dir], basesInUse).pipe(
      Effect.map((found) => new Set(found.flatMap((names) => [...names])))
    )
    const sources = { node_id, data_dir, volumes_dir: join(data_dir, FOLDERS.volumes), allowed_mounts }
    const storage = options.instance_files ?? "auto"
    return NodeDaemon.layerNoDeps(options).pipe(
      Layer.provideMerge(
        Instances.layer({
          servers_dir,
          lost_dir,
          sources,
          disk_check_seconds: options.disk_check_seconds ?? 30
        })
      ),
      Layer.provideMerge(
        Layer.mergeAll(
          Installer.layer({ base_dir, used }),
          InstanceFiles.layer({
            base_dir,
            servers_dir,
            sources,
            storage,
            mounts: options.mounts ?? true,
            containers: docker !== undefined,
            ...(docker?.user === undefined ? {} : { volumes_user: docker.user })
          })
        )
      ),
      Layer.provideMerge(
        docker === undefined
          ? processes
          : RuntimeByServer.layer({
              process: processes,
              docker: DockerRuntime.layer({
                ...docker,
                node: node_id,
                env: containerEnv({ environment, pass_env })
              })
            })
      ),
      Layer.provideMerge(Layer.effectDiscard(claimDataFolder(data_dir)))
    )
  }
}
