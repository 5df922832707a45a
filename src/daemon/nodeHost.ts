/** The host of a node: its data folder, runtimes and files. It needs no control plane. */
import { join, resolve } from "node:path"
import { Effect, Layer } from "effect"
import type { NodeId } from "../domain/Id.ts"
import { InstanceFiles } from "./files/InstanceFiles.ts"
import type { StorageChoice } from "./files/storageProbe.ts"
import { Helper } from "./helper/Helper.ts"
import { claimDataFolder, FOLDERS } from "./host/dataFolder.ts"
import { RuntimeByServer } from "./RuntimeByServer.ts"
import { containerEnv } from "./runtime/childEnv.ts"
import { DockerRuntime, type DockerRuntimeOptions } from "./runtime/docker/DockerRuntime.ts"
import { DEFAULT_UIDS, type IsolationOptions } from "./runtime/isolation.ts"
import { ProcessRuntime } from "./runtime/ProcessRuntime.ts"

export interface NodeHostOptions {
  readonly node_id: NodeId
  /** The data folder of the daemon: `base`, `servers`, `volumes`, and the sources of `copy` entries. */
  readonly dataDir: string
  /** Host folders that blueprints may mount. */
  readonly allowedMounts: ReadonlyArray<string>
  /** The strategy for instance files. Default: the best that works. */
  readonly instanceFiles?: StorageChoice
  /** Whether mounts are used where they work. Default true. */
  readonly mounts?: boolean
  /** The environment of the service, of which servers get `PATH`, `LANG`, `TZ` and the variables of `passEnv`. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Names of variables, or prefixes such as `JAVA_*`, for servers and install scripts. */
  readonly passEnv: ReadonlyArray<string>
  /** The folder in which cgroup v2 groups can be made. Default: detected. */
  readonly cgroupRoot?: string
  /** The isolation of plain processes. Default: the strongest that the host supports. */
  readonly isolation?: Partial<Omit<IsolationOptions, "dataDir">>
  /** The Docker engine for servers with images. Default: plain processes only. */
  readonly docker?: Omit<DockerRuntimeOptions, "node" | "env">
}

/** Returns the folders of a daemon, by absolute paths. */
export const foldersOf = (options: Pick<NodeHostOptions, "dataDir">) => {
  const dataDir = resolve(options.dataDir)
  return {
    dataDir,
    baseDir: join(dataDir, FOLDERS.base),
    serversDir: join(dataDir, FOLDERS.servers),
    lostDir: join(dataDir, FOLDERS.lost),
    volumesDir: join(dataDir, FOLDERS.volumes)
  }
}

/**
 * The runtimes and the files of instances. Both try out what the host offers, which is waiting for other programs, and
 * neither needs the control plane.
 */
export const nodeHost = (options: NodeHostOptions) => {
  const { allowedMounts, cgroupRoot, docker, environment, node_id, passEnv } = options
  const { baseDir, dataDir, serversDir, volumesDir } = foldersOf(options)
  const processes = ProcessRuntime.layer({
    node: `${node_id}@${dataDir}`,
    environment,
    passEnv,
    besideContainers: docker !== undefined,
    isolation: {
      mode: "auto",
      uids: DEFAULT_UIDS,
      hidden: [],
      ...options.isolation,
      dataDir
    },
    ...(cgroupRoot === undefined ? {} : { cgroupRoot })
  })
  const runtime =
    docker === undefined
      ? processes
      : RuntimeByServer.layer({
          process: processes,
          docker: DockerRuntime.layer({
            ...docker,
            node: node_id,
            env: containerEnv({ environment, passEnv })
          })
        })
  const files = InstanceFiles.layer({
    baseDir,
    serversDir,
    sources: { node_id, dataDir, volumesDir, allowedMounts },
    storage: options.instanceFiles ?? "auto",
    mounts: options.mounts ?? true,
    containers: docker !== undefined,
    ...(docker?.user === undefined ? {} : { volumesUser: docker.user })
  })
  return Layer.merge(runtime, files).pipe(
    Layer.provideMerge(
      Layer.effectDiscard(Effect.acquireRelease(Helper, (helper) => Effect.sync(() => helper.close())))
    ),
    Layer.provideMerge(Layer.effectDiscard(claimDataFolder(dataDir)))
  )
}
