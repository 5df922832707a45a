/** The host of a node: its data folder, runtimes and files. It needs no control plane. */
import { join, resolve } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { NodeId } from "../contract/domain/Id.ts"
import type { RuntimeKind } from "../contract/domain/Node.ts"
import { finishPart } from "./backups/restorePart.ts"
import { InstanceFiles } from "./files/InstanceFiles.ts"
import { BACKUPS } from "./files/sources.ts"
import type { StorageChoice } from "./files/storageProbe.ts"
import { Helper } from "./helper/Helper.ts"
import { claimDataFolder, FOLDERS } from "./host/dataFolder.ts"
import { readContainerRecord } from "./runtime/docker/containerRemoval.ts"
import { DockerRuntime, type DockerRuntimeOptions } from "./runtime/docker/DockerRuntime.ts"
import { DEFAULT_UIDS, type IsolationOptions } from "./runtime/isolation.ts"
import { containerEnv } from "./runtime/launchPlan.ts"
import { ProcessRuntime } from "./runtime/ProcessRuntime.ts"
import { type Launch, Runtime, type RuntimeChoice } from "./runtime/Runtime.ts"

const choiceOf = ({ image, runtimes }: Launch): RuntimeChoice => ({
  image,
  runtimes: runtimes ?? (image === "" ? ["process"] : ["docker"])
})

/** Runs a server in a container if it has an image and the engine responds, else as a process if allowed. */
const RuntimeByServer = {
  layer: (runtimes: {
    readonly docker: Layer.Layer<Runtime>
    readonly process: Layer.Layer<Runtime>
  }): Layer.Layer<Runtime> =>
    Layer.effect(
      Runtime,
      Effect.gen(function* () {
        const built = (layer: Layer.Layer<Runtime>) => Effect.map(Layer.build(layer), Context.get(Runtime))
        // Both wait for other programs.
        const [plain, docker] = yield* Effect.all([built(runtimes.process), built(runtimes.docker)], {
          concurrency: 2
        })

        const kindFor = Effect.fnUntraced(function* (choice: RuntimeChoice) {
          if (!choice.runtimes.includes("docker")) return yield* plain.kindFor(choice)
          const inContainer = docker.kindFor(choice)
          if (!choice.runtimes.includes("process")) return yield* inContainer
          return yield* Effect.catch(inContainer, () => plain.kindFor(choice))
        })
        const runtimeOf = (kind: RuntimeKind) => (kind === "docker" ? docker : plain)
        const runtimeFor = (choice: RuntimeChoice | undefined) =>
          choice === undefined ? Effect.succeed(plain) : Effect.map(kindFor(choice), runtimeOf)

        return Runtime.of({
          offer: Effect.map(Effect.all([docker.offer, plain.offer]), ([containers, processes]) => ({
            ...processes,
            kinds: [...containers.kinds, ...processes.kinds],
            isolation: { ...processes.isolation, ...containers.isolation }
          })),
          kindFor,
          userFor: (choice, whom) =>
            Effect.flatMap(runtimeFor(choice), (runtime) => runtime.userFor(choice, whom)),
          users: plain.users,
          ensureImage: (choice, ...more) =>
            Effect.flatMap(runtimeFor(choice), (runtime) => runtime.ensureImage(choice, ...more)),
          start: (launch) => Effect.flatMap(runtimeFor(choiceOf(launch)), (runtime) => runtime.start(launch)),
          adopt: (at) =>
            Effect.flatMap(readContainerRecord(at.folder, at.token), (record) =>
              record === undefined ? plain.adopt(at) : docker.adopt(at)
            ),
          sweep: (name) => Effect.andThen(plain.sweep(name), docker.sweep(name)),
          alive: Effect.map(
            Effect.all([plain.alive, docker.alive]),
            (names) => new Set(names.flatMap((found) => [...found]))
          ),
          job: (job) => Effect.flatMap(runtimeFor(job.choice), (runtime) => runtime.job(job))
        })
      })
    )
}

export interface NodeHostOptions {
  readonly node_id: NodeId
  /** The data folder of the daemon: `base`, `servers`, `volumes`, and the sources of `copy` entries. */
  readonly dataDir: string
  readonly allowedMounts: ReadonlyArray<string>
  /** The strategy for instance files. Default: the best that works. */
  readonly instanceFiles?: StorageChoice
  readonly mounts?: boolean
  /** The environment of the service, of which servers get `PATH`, `LANG`, `TZ` and the variables of `passEnv`. */
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly passEnv: ReadonlyArray<string>
  readonly cgroupRoot?: string
  /** The isolation of plain processes. Default: the strongest that the host supports. */
  readonly isolation?: Partial<Omit<IsolationOptions, "dataDir">>
  readonly docker?: Omit<DockerRuntimeOptions, "node" | "env">
}

export const foldersOf = (options: Pick<NodeHostOptions, "dataDir">) => {
  const dataDir = resolve(options.dataDir)
  return {
    dataDir,
    backupsDir: join(dataDir, BACKUPS),
    baseDir: join(dataDir, FOLDERS.base),
    serversDir: join(dataDir, FOLDERS.servers),
    lostDir: join(dataDir, FOLDERS.lost),
    volumesDir: join(dataDir, FOLDERS.volumes)
  }
}

/** The runtimes and files of instances, which try out what the host offers. Neither needs the control plane. */
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
            env: () => containerEnv({ environment, passEnv })
          })
        })
  const files = InstanceFiles.layer({
    baseDir,
    serversDir,
    sources: { node_id, dataDir, volumesDir, allowedMounts },
    storage: options.instanceFiles ?? "auto",
    mounts: options.mounts ?? true,
    containers: docker !== undefined,
    finishPart,
    ...(docker?.user === undefined ? {} : { volumesUser: docker.user })
  })
  return Layer.merge(runtime, files).pipe(
    Layer.provideMerge(
      Layer.effectDiscard(Effect.acquireRelease(Helper, (helper) => Effect.sync(() => helper.close())))
    ),
    Layer.provideMerge(Layer.effectDiscard(claimDataFolder(dataDir)))
  )
}
