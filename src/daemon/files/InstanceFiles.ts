/**
 * The files of instances: overlays, copies, volumes, owners and disk limits. Imports `disk`, `host` and types of
 * `runtime`. Read first: this file, `createFiles.ts`, `sharedFiles.ts` (what a start mounts).
 */
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { type IoError, makePassage, orMissing, rename } from "../disk/fsio.ts"
import { foundOnce, isNoRoom } from "../disk/remedy.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { makeBaseChanges } from "./changeBase.ts"
import { copyInto } from "./copyInside.ts"
import { treeSize } from "./copyTree.ts"
import { makeCreation } from "./createFiles.ts"
import { beyond, type DiskLimits, diskLimit, openDiskLimits } from "./diskLimits.ts"
import { besideSize, diskUsage, ownSize, sumOf } from "./diskUsage.ts"
import {
  type FileContext,
  type FinishPart,
  makePermits,
  makePlanOf,
  makeVolumeWriters,
  present
} from "./fileContext.ts"
import { layoutOf } from "./fileLayout.ts"
import { instancePaths } from "./importFiles.ts"
import { run, unmountBelow } from "./mounts.ts"
import type { LayerFolders } from "./overlayTree.ts"
import { keptOwner, markForeignFiles, ownerFor } from "./owners.ts"
import { makeRestoration } from "./restoreFiles.ts"
import { instanceFolder } from "./sharedFiles.ts"
import type { FileSources } from "./sources.ts"
import { probeStorage, type StorageChoice } from "./storageProbe.ts"
import { PART, placedNote, recoverFiles } from "./swapFiles.ts"
import { generationsDir, plainBase, readTreeRecord, TREE } from "./treeRecord.ts"

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
  readonly finishPart?: FinishPart
}

const VOLUMES_USER: RunUser = { uid: 988, gid: 988 }

/** Returns the user of a server's files, unless there are none, or they are the daemon's. */
const keptUser = Effect.fnUntraced(function* (folder: string, volumesUser: RunUser) {
  const owner = yield* keptOwner(folder, instanceFolder(folder))
  if (owner === undefined || owner.uid === 0) return undefined
  const user: RunUser = owner.uid === volumesUser.uid ? owner : { ...owner, own: true }
  return user
})

/** Makes ext4 place each folder in its own block group: one for all searches past every freed inode. */
const spreadFolders = (serversDir: string) =>
  Effect.catch(run(`spread the folders of ${serversDir}`, ["chattr", "+T", "--", serversDir]), (error) =>
    // Another file system has no such attribute.
    Effect.logDebug(error.message)
  )

const makeMethods = (context: FileContext) => {
  const restoration = makeRestoration(context)
  const open = Effect.fn("InstanceFiles.open")(function* (
    folder: string,
    spec: ServerSpec,
    kind: RuntimeKind,
    user?: RunUser | "kept"
  ) {
    const names = yield* recoverFiles(folder)
    const owner = user === "kept" ? yield* keptUser(folder, context.volumesUser) : user
    const shared = yield* present(context, folder, spec, kind, owner)
    if (names.includes(PART))
      yield* Effect.catch(restoration.finish(folder, spec), ({ message }) =>
        Effect.logError(`a part of a backup is not wholly in place: ${message}`)
      )
    return shared
  }, Effect.uninterruptible)
  const make = makeCreation(context)
  return {
    strategy: context.storage.strategy,
    make,
    open,
    ...makeBaseChanges(context, make),
    ...restoration
  }
}
type Methods = ReturnType<typeof makeMethods>

/** Measures the files of servers. */
const makeMeasures = (
  planOf: ReturnType<typeof makePlanOf>,
  limits: DiskLimits,
  { generations }: LayerFolders
) => ({
  usage: Effect.fn("InstanceFiles.usage")(function* (folder: string, spec: ServerSpec) {
    return yield* diskUsage(folder, yield* planOf(spec))
  }),
  /**
   * Returns a server's usage, if over its limit or unmeasurable, unless the file system enforces it.
   * @param pids the processes of a running server, whose temporary folder and unnamed files count, too
   */
  overLimit: Effect.fn("InstanceFiles.overLimit")(function* (
    folder: string,
    spec: ServerSpec,
    pids?: ReadonlyArray<number>
  ) {
    const limit = diskLimit(spec)
    if (limit === 0) return undefined
    const record = yield* readTreeRecord(join(folder, TREE))
    const isEnforced = limits.isEnforced(folder, record !== undefined)
    const own = isEnforced ? [] : [yield* ownSize(folder, yield* planOf(spec), record)]
    return beyond(sumOf([...own, yield* besideSize(folder, pids)]), limit)
  }),
  /** Returns the disk limit of a server in bytes, 0 for none, what counts against it, and the bytes of its base. */
  diskUse: Effect.fn("InstanceFiles.diskUse")(function* (folder: string, spec: ServerSpec) {
    const limit = diskLimit(spec)
    const record = yield* readTreeRecord(join(folder, TREE))
    const measured = Effect.gen(function* () {
      const own = yield* ownSize(folder, yield* planOf(spec), record)
      return sumOf([own, yield* besideSize(folder, undefined)])
    })
    const base = Effect.gen(function* () {
      const generation = record?.base ?? (yield* plainBase(folder))
      if (generation === undefined) return 0
      return (yield* treeSize(join(generations, generation)).pipe(orMissing({ bytes: 0 }))).bytes
    })
    return { limit, isEnforced: limits.isEnforced(folder, record !== undefined), measured, base }
  }),
  /** Measures the files of a server that runs which have changed since a time, in ms since the epoch. */
  changed: Effect.fn("InstanceFiles.changed")(function* (
    folder: string,
    spec: ServerSpec,
    pids: ReadonlyArray<number>,
    since: number
  ) {
    const record = yield* readTreeRecord(join(folder, TREE))
    const own = yield* ownSize(folder, yield* planOf(spec), record, since)
    return sumOf([own, yield* besideSize(folder, pids, since)])
  })
})

const makeInstanceFiles = Effect.fnUntraced(function* (options: InstanceFilesOptions) {
  const { baseDir, finishPart = () => Effect.void, serversDir, sources, volumesUser = VOLUMES_USER } = options
  for (const folder of [sources.volumesDir, serversDir]) yield* Effect.orDie(makePassage(folder))
  yield* Effect.forkScoped(spreadFolders(serversDir))
  const at: LayerFolders = { generations: generationsDir(baseDir), sources }
  const planOf = makePlanOf(sources)
  const limits = yield* Effect.orDie(openDiskLimits(serversDir))
  const writers = makeVolumeWriters(sources)
  const permits = makePermits()
  const locks = makeKeyedLock()
  const serial =
    <R extends ReadonlyArray<unknown>, A, E>(use: (folder: string, ...rest: R) => Effect.Effect<A, E>) =>
    (folder: string, ...rest: R): Effect.Effect<A, E> =>
      locks.withLock(folder)(use(folder, ...rest))

  const probe = probeStorage(serversDir, {
    choice: options.storage ?? "auto",
    mounts: options.mounts ?? true,
    mapped: options.mapped ?? true,
    shared: options.containers ?? false
  }).pipe(
    Effect.tap(({ strategy }) => Effect.logDebug(`instance files use ${strategy}`)),
    Effect.map((storage) =>
      makeMethods({ at, finishPart, limits, permits, planOf, storage, volumesUser, writers })
    )
  )
  // A full disk hides the features of its file system: each use probes again.
  const methods = yield* foundOnce(serversDir, probe)
  yield* methods.pipe(
    Effect.catchIf(isNoRoom, ({ message }) =>
      Effect.logError(`files of servers cannot be made until the disk has room: ${message}`)
    ),
    Effect.orDie
  )

  const method = <R extends ReadonlyArray<unknown>, A>(
    which: (all: Methods) => (folder: string, ...rest: R) => Effect.Effect<A, IoError>
  ) => serial((folder, ...rest: R) => Effect.flatMap(methods, (all) => which(all)(folder, ...rest)))

  return {
    /** The strategy for new instances, unless a full disk hides it. */
    strategy: Effect.orElseSucceed(
      Effect.map(methods, ({ strategy }) => strategy),
      () => undefined
    ),
    /** Recreates a server's files for `user`, or this service. The old files stay until the new ones are complete. */
    make: method(({ make }) => make),
    /** Replaces the base below a server's files: files of the base win, and files that only the server has stay. */
    renew: method(({ renew }) => renew),
    /**
     * Replaces the base for another definition. What the server has changed, added or deleted stays; new templates
     * (copies and `cow` volumes) are added where it has nothing.
     * @error IoError the old base is unknown, so the server's own files cannot be told apart; nothing has changed
     */
    upgrade: method(({ upgrade }) => upgrade),
    /** Makes the files of a backup aside, with the layers that the server has. A failure leaves nothing. */
    stage: method(({ stage }) => stage),
    unstage: method(({ unstage }) => unstage),
    /** Puts a part of a backup in place that is complete. Until it has ended, {@link open} of a later daemon does so. */
    finish: method(({ finish }) => finish),
    /**
     * Puts files made aside in place, which a later daemon completes. Requires that nothing uses the old files.
     * @error IoError there are none
     */
    place: method(({ place }) => place),
    placedNote,
    /** Mounts the files and sets their owner (see `make`), `kept` before. Returns the shared folders among them. */
    open: method(({ open }) => open),
    /** Marks files with another owner for the next `open`. Requires that no process of the server runs. */
    reclaim: serial(
      Effect.fn("InstanceFiles.reclaim")(function* (folder: string, user?: RunUser) {
        const owner = ownerFor(user)
        if (owner === undefined) return
        // In a plain folder, mounted files would be examined as well.
        if ((yield* readTreeRecord(join(folder, TREE))) === undefined) yield* unmountBelow(folder)
        yield* markForeignFiles(folder, instanceFolder(folder), owner)
      })
    ),
    /** Copies `copy` entries of every start, never through a server's link. Requires that no process runs. */
    copyAtStart: serial(
      Effect.fn("InstanceFiles.copyAtStart")(function* (folder: string, spec: ServerSpec) {
        if (!spec.definition.copy.some(({ when }) => when === "start")) return
        yield* copyInto(instanceFolder(folder), (yield* planOf(spec, "start")).copies, sources)
      })
    ),
    /** Returns where the files of a server lie. Requires that they are made. */
    layout: (folder: string, spec: ServerSpec) => layoutOf(at, planOf, folder, spec),
    paths: (spec: ServerSpec) => Effect.map(planOf(spec), instancePaths),
    close: serial(Effect.fn("InstanceFiles.close")((folder: string) => unmountBelow(folder))),
    ...makeMeasures(planOf, limits, at),
    /** Registers a server of this node: volumes that it writes do not become layers of others. */
    register: writers.register,
    /** Renames the folder of a removed server, if it exists. Its disk quota stays reserved until `forget(to)`. */
    moveAside: Effect.fnUntraced(function* (folder: string, to: string) {
      yield* rename(folder, to).pipe(orMissing(undefined))
      writers.forget(folder)
      limits.rename(folder, to)
    }),
    forget: (folder: string) => {
      writers.forget(folder)
      return limits.release(folder)
    }
  }
})

/**
 * The files of instances (spec 4.6). Mounts outlive this service, but not a reboot. Requires that no process of the
 * server runs where they change.
 */
export class InstanceFiles extends Context.Service<
  InstanceFiles,
  Effect.Success<ReturnType<typeof makeInstanceFiles>>
>()("muster/daemon/InstanceFiles") {
  static readonly layer = (options: InstanceFilesOptions) =>
    Layer.effect(InstanceFiles, makeInstanceFiles(options))
}
