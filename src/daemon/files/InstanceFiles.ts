/**
 * The files of instances: overlays, copies, volumes, owners and disk limits. Imports `disk`, `host` and types of
 * `runtime`. Read first: this file, `createFiles.ts`, `sharedFiles.ts` (what a start mounts).
 */
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { InstanceStorage, RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { foundOnce, isNoRoom } from "../disk/foundOnce.ts"
import { type IoError, makePassage, orMissing, rename } from "../disk/fsio.ts"
import type { RunUser, SharedFolder } from "../runtime/Runtime.ts"
import type { InstancePaths } from "../transfer/archive.ts"
import { recoverFiles } from "./carryOver.ts"
import { type DefinitionStep, makeBaseChanges } from "./changeBase.ts"
import { copyInto } from "./copyInside.ts"
import type { TreeSize } from "./copyTree.ts"
import { makeCreation } from "./createFiles.ts"
import { beyond, diskLimit, type OverLimit, openDiskLimits } from "./diskLimits.ts"
import { type DiskUsage, diskUsage, ownSize, privateSize, sumOf, unnamedSize } from "./diskUsage.ts"
import { makeFileContext, makePlanOf, makeVolumeWriters } from "./fileContext.ts"
import { instancePaths } from "./importFiles.ts"
import { run, unmountBelow } from "./mounts.ts"
import type { BaseFolder, LayerFolders } from "./overlayTree.ts"
import { keptOwner, markForeignFiles, ownerFor } from "./owners.ts"
import { instanceFolder } from "./sharedFiles.ts"
import type { FileSources } from "./sources.ts"
import { probeStorage, type Storage, type StorageChoice } from "./storageProbe.ts"
import { generationsDir, readTreeRecord, TREE } from "./treeRecord.ts"

export interface InstanceFilesOptions {
  readonly baseDir: string
  readonly serversDir: string
  readonly sources: FileSources
  readonly storage?: StorageChoice
  readonly mounts?: boolean
  /** Whether mounts map the owner of files where that works. Default true. */
  readonly mapped?: boolean
  /** Whether servers may run in containers, whose engine must see the mounts. Default false. */
  readonly containers?: boolean
  /** The user of containers, who owns the volumes that servers write. Default 988:988. */
  readonly volumesUser?: RunUser
}

const VOLUMES_USER: RunUser = { uid: 988, gid: 988 }

/** Makes ext4 place each folder in its own block group: one for all searches past every freed inode. */
const spreadFolders = (serversDir: string) =>
  Effect.catch(run(`spread the folders of ${serversDir}`, ["chattr", "+T", "--", serversDir]), (error) =>
    // Another file system has no such attribute.
    Effect.logDebug(error.message)
  )

/**
 * The files of instances (spec 4.6). Mounts outlive this service, but not a reboot. Requires that no process of the
 * server runs where they change.
 */
export class InstanceFiles extends Context.Service<
  InstanceFiles,
  {
    /** The strategy for new instances, unless a full disk hides it. */
    readonly strategy: Effect.Effect<InstanceStorage | undefined>
    /** Recreates a server's files for `user`, or this service. The old files stay until the new ones are complete. */
    make(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /** Replaces the base below a server's files: files of the base win, and files that only the server has stay. */
    renew(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /**
     * Replaces the base for another definition. What the server has changed, added or deleted stays; new templates
     * (copies and `cow` volumes) are added where it has nothing.
     * @error IoError the old base is unknown, so the server's own files cannot be told apart; nothing has changed
     */
    upgrade(
      folder: string,
      base: BaseFolder,
      change: DefinitionStep,
      user?: RunUser
    ): Effect.Effect<void, IoError>
    /** Mounts the files and sets their owner (see `make`), `kept` before. Returns the shared folders among them. */
    open(
      folder: string,
      spec: ServerSpec,
      kind: RuntimeKind,
      user?: RunUser | "kept"
    ): Effect.Effect<ReadonlyArray<SharedFolder>, IoError>
    /** Marks files with another owner for the next `open`. Requires that no process of the server runs. */
    reclaim(folder: string, user?: RunUser): Effect.Effect<void, IoError>
    /** Copies `copy` entries of every start, never through a server's link. Requires that no process runs. */
    copyAtStart(folder: string, spec: ServerSpec): Effect.Effect<void, IoError>
    paths(spec: ServerSpec): Effect.Effect<InstancePaths, IoError>
    close(folder: string): Effect.Effect<void, IoError>
    usage(folder: string, spec: ServerSpec): Effect.Effect<DiskUsage, IoError>
    /** Returns a server's usage, if over its limit or unmeasurable, unless the file system enforces it. */
    overLimit(
      folder: string,
      spec: ServerSpec,
      /** The processes of a running server, whose temporary folder and unnamed files count, too. */
      pids?: ReadonlyArray<number>
    ): Effect.Effect<OverLimit | undefined, IoError>
    /** Measures the files of a server that runs which have changed since a time, in ms since the epoch. */
    changed(
      folder: string,
      spec: ServerSpec,
      pids: ReadonlyArray<number>,
      since: number
    ): Effect.Effect<TreeSize, IoError>
    /** Registers a server of this node: volumes that it writes do not become layers of others. */
    register(folder: string, spec: ServerSpec): void
    /** Renames the folder of a removed server, if it exists. Its disk quota stays reserved until `forget(to)`. */
    moveAside(folder: string, to: string): Effect.Effect<void, IoError>
    forget(folder: string): Effect.Effect<void>
  }
>()("muster/daemon/InstanceFiles") {
  static readonly layer = (options: InstanceFilesOptions) =>
    Layer.effect(
      InstanceFiles,
      Effect.gen(function* () {
        const { baseDir, serversDir, sources, volumesUser = VOLUMES_USER } = options
        for (const folder of [sources.volumesDir, serversDir]) yield* Effect.orDie(makePassage(folder))
        yield* Effect.forkScoped(spreadFolders(serversDir))
        const at: LayerFolders = { generations: generationsDir(baseDir), sources }
        const planOf = makePlanOf(sources)
        const limits = yield* Effect.orDie(openDiskLimits(serversDir))
        const writers = makeVolumeWriters(sources)
        const keptUser = Effect.fnUntraced(function* (folder: string) {
          const owner = yield* keptOwner(folder, instanceFolder(folder))
          if (owner === undefined || owner.uid === 0) return undefined
          const user: RunUser = owner.uid === volumesUser.uid ? owner : { ...owner, own: true }
          return user
        })

        const locks = makeKeyedLock()
        const serial =
          <R extends ReadonlyArray<unknown>, A, E>(
            use: (folder: string, ...rest: R) => Effect.Effect<A, E>
          ) =>
          (folder: string, ...rest: R): Effect.Effect<A, E> =>
            locks.withLock(folder)(use(folder, ...rest))

        const close = Effect.fn("InstanceFiles.close")((folder: string) => unmountBelow(folder))

        const makeOperations = (storage: Storage) => {
          const context = makeFileContext({ at, limits, storage, volumesUser, writers })
          const open = Effect.fn("InstanceFiles.open")(function* (
            folder: string,
            spec: ServerSpec,
            kind: RuntimeKind,
            user?: RunUser | "kept"
          ) {
            yield* recoverFiles(folder)
            return yield* context.present(
              folder,
              spec,
              kind,
              user === "kept" ? yield* keptUser(folder) : user
            )
          }, Effect.uninterruptible)
          const make = makeCreation(context)
          return { strategy: storage.strategy, make, open, ...makeBaseChanges(context, make) }
        }
        const probe = probeStorage(serversDir, {
          choice: options.storage ?? "auto",
          mounts: options.mounts ?? true,
          mapped: options.mapped ?? true,
          shared: options.containers ?? false
        }).pipe(
          Effect.tap(({ strategy }) => Effect.logDebug(`instance files use ${strategy}`)),
          Effect.map(makeOperations)
        )
        // A full disk hides the features of its file system: each use probes again.
        const operations = yield* foundOnce(serversDir, probe)
        yield* operations.pipe(
          Effect.catchIf(isNoRoom, ({ message }) =>
            Effect.logError(`files of servers cannot be made until the disk has room: ${message}`)
          ),
          Effect.orDie
        )

        const reclaim = Effect.fn("InstanceFiles.reclaim")(function* (folder: string, user?: RunUser) {
          const owner = ownerFor(user)
          if (owner === undefined) return
          // In a plain folder, mounted files would be examined as well.
          if ((yield* readTreeRecord(join(folder, TREE))) === undefined) yield* close(folder)
          yield* markForeignFiles(folder, instanceFolder(folder), owner)
        })

        const copyAtStart = Effect.fn("InstanceFiles.copyAtStart")(function* (
          folder: string,
          { definition, ...spec }: ServerSpec
        ) {
          if (!definition.copy.some(({ when }) => when === "start")) return
          const plan = yield* planOf({ definition, ...spec }, "start")
          yield* copyInto(instanceFolder(folder), plan.copies, sources)
        })

        const usage = Effect.fn("InstanceFiles.usage")(function* (folder: string, spec: ServerSpec) {
          return yield* diskUsage(folder, yield* planOf(spec))
        })

        const overLimit = Effect.fn("InstanceFiles.overLimit")(function* (
          folder: string,
          spec: ServerSpec,
          pids?: ReadonlyArray<number>
        ) {
          const limit = diskLimit(spec)
          if (limit === 0) return undefined
          const record = yield* readTreeRecord(join(folder, TREE))
          const enforced = limits.isEnforced(folder, record !== undefined)
          const sizes = [
            ...(enforced ? [] : [yield* ownSize(folder, yield* planOf(spec), record)]),
            yield* privateSize(folder, "log"),
            ...(pids === undefined
              ? []
              : [yield* privateSize(folder, "temporary"), yield* unnamedSize(folder, pids)])
          ]
          return beyond(sumOf(sizes), limit)
        })

        const changed = Effect.fn("InstanceFiles.changed")(function* (
          folder: string,
          spec: ServerSpec,
          pids: ReadonlyArray<number>,
          since: number
        ) {
          const record = yield* readTreeRecord(join(folder, TREE))
          return sumOf([
            yield* ownSize(folder, yield* planOf(spec), record, since),
            yield* privateSize(folder, "log", since),
            yield* privateSize(folder, "temporary", since),
            yield* unnamedSize(folder, pids, since)
          ])
        })

        return InstanceFiles.of({
          strategy: Effect.orElseSucceed(
            Effect.map(operations, ({ strategy }) => strategy),
            () => undefined
          ),
          make: serial((...given) => Effect.flatMap(operations, ({ make }) => make(...given))),
          renew: serial((...given) => Effect.flatMap(operations, ({ renew }) => renew(...given))),
          upgrade: serial((...given) => Effect.flatMap(operations, ({ upgrade }) => upgrade(...given))),
          open: serial((...given) => Effect.flatMap(operations, ({ open }) => open(...given))),
          copyAtStart: serial(copyAtStart),
          paths: (spec) => Effect.map(planOf(spec), instancePaths),
          reclaim: serial(reclaim),
          close: serial(close),
          usage,
          overLimit,
          changed,
          register: writers.register,
          moveAside: Effect.fnUntraced(function* (folder, to) {
            yield* rename(folder, to).pipe(orMissing(undefined))
            writers.forget(folder)
            limits.rename(folder, to)
          }),
          forget: (folder) => {
            writers.forget(folder)
            return limits.release(folder)
          }
        })
      })
    )
}
