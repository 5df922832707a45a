import * as fs from "node:fs/promises"
import { join, sep } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { Copy } from "../../domain/Blueprint.ts"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import type { InstanceStorage } from "../../domain/SystemInfo.ts"
import { makeKeyedLock } from "../../work/KeyedLock.ts"
import { foundOnce, isNoRoom } from "../disk/foundOnce.ts"
import { IoError, io, listFolder, lstat, makeFolder, makePassage, orMissing, rename } from "../disk/fsio.ts"
import type { RunUser, SharedFolder } from "../runtime/Runtime.ts"
import type { InstancePaths } from "../transfer/archive.ts"
import { buildOverlay } from "./buildOverlay.ts"
import { carryOver } from "./carryOver.ts"
import { copiesOf, copyInto, copyIntoShared } from "./copyInside.ts"
import { copyTree } from "./copyTree.ts"
import { diskLimit, type OverLimit, openDiskLimits } from "./diskLimits.ts"
import { type DiskUsage, diskUsage, sumOf, temporarySize } from "./diskUsage.ts"
import { type FilePlan, filePlan, isAbove, type Target } from "./filePlan.ts"
import { withHomeEntries } from "./homeEntries.ts"
import { instancePaths } from "./importFiles.ts"
import { unmountBelow } from "./mounts.ts"
import { type BaseFolder, type LayerFolders, withBase } from "./overlayTree.ts"
import { chownParts, foreignParts, keptOwner, markForeignFiles, ownerFor, ownerOf } from "./owners.ts"
import { plainBase, recordPlainBase, settlePlainBase } from "./plainRecord.ts"
import { addCopies, addVolumes, buildPlain } from "./plainTree.ts"
import { instanceFolder, makePresenter, sharingFor } from "./presentFiles.ts"
import { rebase } from "./rebase.ts"
import { openShared, type SharedOwner, share } from "./sharedFiles.ts"
import { type FileSources, kindAt, type Source } from "./sources.ts"
import { probeStorage, type Storage, type StorageChoice } from "./storageProbe.ts"
import { building, cleanFiles, discardFiles, recoverFiles, swapIn } from "./swapIn.ts"
import { generationsDir, readTreeRecord, TREE, writeTreeRecord } from "./treeRecord.ts"

export type { DiskUsage } from "./diskUsage.ts"
export { instanceFolder } from "./presentFiles.ts"
export type { FileSources } from "./sources.ts"

export interface InstanceFilesOptions {
  readonly baseDir: string
  readonly serversDir: string
  readonly sources: FileSources
  /** Default `auto`. */
  readonly storage?: StorageChoice
  /** Whether mounts are used where they work. Default true. */
  readonly mounts?: boolean
  /** Whether mounts map the owner of files where that works. Default true. */
  readonly mapped?: boolean
  /** Whether servers may run in containers, whose engine must see the mounts. Default false. */
  readonly containers?: boolean
  /** The user of containers, who owns the volumes that servers write. Default 988:988. */
  readonly volumesUser?: RunUser
}

const VOLUMES_USER: RunUser = { uid: 988, gid: 988 }

/** A change of a server's definition. */
export interface DefinitionStep {
  readonly from: ServerSpec
  readonly to: ServerSpec
  /** The base of `from`, if the record of the instance does not name its base: an earlier version made it. */
  readonly likelyBase: BaseFolder | undefined
}

/** Returns the runtime of a server as its definition suggests; the start decides. */
export const likelyKind = ({ definition }: ServerSpec): RuntimeKind =>
  definition.image !== "" && definition.runtimes.includes("docker") ? "docker" : "process"
/**
 * The files of instances (blueprints.md, "Software"). An instance is made from a base folder, volumes and copies, by
 * copy-on-write if the node can, and is visible at `instanceFolder`. Mounts outlive this service, but not a reboot.
 * Requires that the files of a server have one user at a time, and that no process of the server runs where they
 * change.
 */
export class InstanceFiles extends Context.Service<
  InstanceFiles,
  {
    /** The strategy for new instances; undefined while a full disk hides it. */
    readonly strategy: Effect.Effect<InstanceStorage | undefined>
    /**
     * Recreates the files of a server; the old files stay until the new ones are complete. `user`: the user of the
     * server, who becomes the owner of all files; absent: the user of this service.
     */
    make(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /**
     * Replaces the base below the files of a server: files of the base take precedence, and files that only the server
     * has stay.
     */
    renew(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /**
     * Replaces the base below the files of a server, for another definition: what the server has changed, added or
     * deleted stays. New templates (copies and `cow` volumes) are added where the server has nothing.
     *
     * @error IoError the old base is unknown, so that the server's own files cannot be told apart; nothing has changed
     */
    upgrade(
      folder: string,
      base: BaseFolder,
      change: DefinitionStep,
      user?: RunUser
    ): Effect.Effect<void, IoError>
    /**
     * Mounts the files and sets their owner (see `make`; `kept`: their current owner). Returns the shared folders among
     * them.
     */
    open(
      folder: string,
      spec: ServerSpec,
      kind: RuntimeKind,
      user?: RunUser | "kept"
    ): Effect.Effect<ReadonlyArray<SharedFolder>, IoError>
    /**
     * Marks files with an owner other than the user of the next run; the next `open` sets their owner. Requires that no
     * process of the server runs.
     */
    reclaim(folder: string, user?: RunUser): Effect.Effect<void, IoError>
    /**
     * Copies the `copy` entries of every start into the mounted files; never through a link that the server has made.
     * Requires that no process of the server runs.
     */
    copyAtStart(folder: string, spec: ServerSpec): Effect.Effect<void, IoError>
    /** Returns the paths of the files of a server, by owner. */
    paths(spec: ServerSpec): Effect.Effect<InstancePaths, IoError>
    /** Unmounts everything in the folder, which can then be removed. */
    close(folder: string): Effect.Effect<void, IoError>
    usage(folder: string, spec: ServerSpec): Effect.Effect<DiskUsage, IoError>
    /**
     * Returns the usage of a server beyond its disk limit, or that cannot be measured; undefined: within the limit, or
     * the file system enforces it.
     */
    overLimit(
      folder: string,
      spec: ServerSpec,
      /** Whether the temporary folder counts, which the next start empties. */
      options: { readonly temporary: boolean }
    ): Effect.Effect<OverLimit | undefined, IoError>
    /** Registers a server of this node: volumes that it writes do not become layers of others. */
    register(folder: string, spec: ServerSpec): void
    /** Renames the folder of a removed server, if it exists. Its disk quota stays reserved until `forget(to)`. */
    moveAside(folder: string, to: string): Effect.Effect<void, IoError>
    /** Forgets the folder of a removed server. */
    forget(folder: string): Effect.Effect<void>
  }
>()("muster/daemon/InstanceFiles") {
  static readonly layer = (options: InstanceFilesOptions) =>
    Layer.effect(
      InstanceFiles,
      Effect.gen(function* () {
        const { baseDir, serversDir, sources, volumesUser = VOLUMES_USER } = options
        for (const folder of [sources.volumesDir, serversDir]) yield* Effect.orDie(makePassage(folder))
        const at: LayerFolders = { generations: generationsDir(baseDir), sources }
        /** Returns the plan of a server; `when`: with the copies of this time. */
        const planOf = Effect.fnUntraced(function* (
          { definition }: ServerSpec,
          when?: NonNullable<Copy["when"]>
        ) {
          const copy = when === undefined ? [] : yield* copiesOf(definition.copy, when, sources)
          const given = yield* withHomeEntries({ ...definition, copy }, sources)
          return yield* Effect.fromResult(filePlan(given))
        })
        const limits = yield* Effect.orDie(openDiskLimits(serversDir))
        const known = new Map<string, ServerSpec>()
        /** Returns the ids of the other servers that write a volume. */
        const writersOf = Effect.fnUntraced(function* (folder: string, real: string) {
          const others = [...known].filter(([other]) => other !== folder)
          const found = yield* Effect.filter(others, ([, { definition }]) =>
            Effect.map(writtenVolumes(definition.volumes), (paths) => paths.includes(real))
          )
          return found.map(([, { id }]) => id)
        })

        /** Returns the paths of volumes that servers write, except missing and refused ones. */
        const writtenVolumes = Effect.fnUntraced(function* (volumes: ServerSpec["definition"]["volumes"]) {
          const names = new Set(volumes.flatMap(({ mode, source }) => (mode === "rw" ? [source] : [])))
          const found = yield* Effect.forEach(names, (source) =>
            io(source, () => fs.realpath(join(sources.volumesDir, source))).pipe(
              Effect.orElseSucceed(() => undefined)
            )
          )
          return found.filter((path) => path !== undefined)
        })

        const keptUser = Effect.fnUntraced(function* (folder: string) {
          const owner = yield* keptOwner(folder, instanceFolder(folder))
          if (owner === undefined || owner.uid === 0) return undefined
          const user: RunUser = owner.uid === volumesUser.uid ? owner : { ...owner, own: true }
          return user
        })

        const locks = makeKeyedLock()
        /** Serialises the calls for each folder. */
        const serial =
          <R extends ReadonlyArray<unknown>, A, E>(
            use: (folder: string, ...rest: R) => Effect.Effect<A, E>
          ) =>
          (folder: string, ...rest: R): Effect.Effect<A, E> =>
            locks.withLock(folder)(use(folder, ...rest))

        const close = Effect.fn("InstanceFiles.close")((folder: string) => unmountBelow(folder))

        /** Makes the operations that depend on the features of the file system. */
        const makeOperations = (storage: Storage) => {
          const mapped = storage.mapped.layers
          const presenter = makePresenter({ at, binds: storage.binds, mapped })
          const sharedOwner = (folder: string, user: RunUser | undefined): SharedOwner => ({
            owner: ownerFor(user),
            hasOwnUid: user?.own === true,
            volumes: volumesUser,
            mapped: storage.mapped.binds,
            writers: (real) => writersOf(folder, real)
          })
          const present = Effect.fnUntraced(function* (
            folder: string,
            spec: ServerSpec,
            kind: RuntimeKind,
            user: RunUser | undefined
          ) {
            yield* limits.confirm(folder, spec)
            return yield* presenter.present(folder, yield* planOf(spec), kind, sharedOwner(folder, user))
          })
          const open = Effect.fn("InstanceFiles.open")(function* (
            folder: string,
            spec: ServerSpec,
            kind: RuntimeKind,
            user?: RunUser | "kept"
          ) {
            yield* recoverFiles(folder)
            return yield* present(folder, spec, kind, user === "kept" ? yield* keptUser(folder) : user)
          }, Effect.uninterruptible)

          /** Whether to copy a volume: one that a server of this node writes must not change while it is a layer. */
          const copyFirst = Effect.gen(function* () {
            const found = yield* writtenVolumes(
              [...known.values()].flatMap((spec) => spec.definition.volumes)
            )
            const parts = found.map((path) => path.split(sep))
            return ({ real }: Source) => {
              const own = real.split(sep)
              return storage.reflink || parts.some((one) => isAbove(one, own) || isAbove(own, one))
            }
          })

          const shareAt = Effect.fnUntraced(function* (
            root: string,
            plan: FilePlan,
            way: "place" | "copy" | "link",
            to: SharedOwner
          ) {
            const given = way === "place" ? undefined : to
            return yield* share(root, yield* openShared(plan, sources, given), way, to)
          }, Effect.scoped)

          /**
           * Whether a base can be a layer below files of an owner: a mount maps its owner, or the owners are the same.
           */
          const isLayer = Effect.fnUntraced(function* (base: string, owner: RunUser | undefined) {
            if (mapped || owner === undefined || owner.uid === 0) return true
            return (yield* ownerOf(base)).uid === owner.uid
          })

          const make = Effect.fn("InstanceFiles.make")(function* (
            folder: string,
            base: BaseFolder,
            spec: ServerSpec,
            user?: RunUser
          ) {
            const plan = yield* planOf(spec, "create")
            const to = sharedOwner(folder, user)
            const overlay = storage.strategy === "overlay" && (yield* isLayer(base.folder, to.owner))
            yield* recoverFiles(folder)
            yield* cleanFiles(folder)
            yield* Effect.gen(function* () {
              yield* makeFolder(folder)
              const { files, tree } = building(folder)
              if (overlay) {
                const { generation } = base
                yield* makeFolder(tree)
                yield* limits.begin(folder, spec, tree)
                yield* presenter.settle(generation, to.owner)
                yield* buildOverlay({
                  building: { files, tree },
                  at,
                  generation,
                  plan,
                  to,
                  copyFirst: yield* copyFirst,
                  mapped,
                  binds: storage.binds
                })
              } else {
                const way = storage.binds ? "place" : sharingFor(likelyKind(spec))
                yield* makeFolder(files)
                yield* limits.begin(folder, spec, files)
                yield* buildPlain({
                  files,
                  base: base.folder,
                  plan,
                  sources,
                  owner: to.owner,
                  share: (root) => shareAt(root, plan, way, to)
                })
                yield* recordPlainBase(folder, files, base.generation)
              }
            }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
            yield* swapIn(folder, overlay).pipe(
              Effect.andThen(present(folder, spec, likelyKind(spec), user)),
              Effect.andThen(copyIntoShared(plan, sources)),
              Effect.onError(() => Effect.ignore(discardFiles(folder))),
              Effect.uninterruptible
            )
            yield* settlePlainBase(folder, instanceFolder(folder))
            yield* cleanFiles(folder)
          })

          const renew = Effect.fn("InstanceFiles.renew")(function* (
            folder: string,
            base: BaseFolder,
            spec: ServerSpec,
            user?: RunUser
          ) {
            yield* recoverFiles(folder)
            const tree = join(folder, TREE)
            const files = instanceFolder(folder)
            const record = yield* readTreeRecord(tree)
            const empty = record === undefined && (yield* listFolder(files)).length === 0
            if (empty) return yield* make(folder, base, spec, user) // a failed installation left no files
            yield* cleanFiles(folder)
            const restore = Effect.ignore(present(folder, spec, likelyKind(spec), user))
            const owner = ownerFor(user)
            // Unmounted first: no file of the base is written into shared folders.
            yield* close(folder)
            if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
            if (record === undefined) {
              yield* Effect.onError(copyTree(base.folder, files, { owner }), () => restore)
              yield* recordPlainBase(folder, files, base.generation)
            } else {
              yield* carryOver({
                folder,
                record: yield* withBase(record, base),
                prepare: (tree) => limits.begin(folder, spec, tree),
                oldBase: join(at.generations, record.base),
                newBase: base.folder,
                owner
              }).pipe(Effect.onError(() => restore))
            }
            yield* present(folder, spec, likelyKind(spec), user)
          })

          /** Replaces the plain files of a server. */
          const rebasePlain = Effect.fnUntraced(function* (
            folder: string,
            base: BaseFolder,
            { likelyBase, to }: DefinitionStep,
            owner: RunUser | undefined
          ) {
            const files = instanceFolder(folder)
            const generation = (yield* plainBase(folder, files)) ?? likelyBase?.generation
            if (generation === base.generation) return
            const old = generation === undefined ? undefined : join(at.generations, generation)
            if (generation === undefined || old === undefined || !(yield* lstat(old))?.isDirectory()) {
              return yield* new IoError({
                code: "REFUSED",
                message:
                  "the base from which the files of the server were made is gone, so that its own files cannot be told apart",
                next: "reset the server, which deletes everything that it has written"
              })
            }
            const { files: target } = building(folder)
            yield* recordPlainBase(folder, files, generation)
            yield* Effect.gen(function* () {
              yield* makeFolder(target)
              yield* limits.begin(folder, to, target)
              yield* rebase({ own: files, old, next: base.folder, target, owner })
              yield* recordPlainBase(folder, target, base.generation)
            }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
            yield* swapIn(folder, false).pipe(
              Effect.onError(() => Effect.ignore(recoverFiles(folder))),
              Effect.uninterruptible
            )
            yield* cleanFiles(folder)
            yield* settlePlainBase(folder, files)
          })

          /** Adds copies and `cow` volumes that an earlier plan did not have. */
          const addTemplates = Effect.fnUntraced(function* (
            folder: string,
            before: FilePlan,
            plan: FilePlan
          ) {
            const files = instanceFolder(folder)
            const had = new Set([...before.cow, ...before.copies].map(({ parts }) => parts.join("/")))
            const isNew = Effect.fnUntraced(function* ({ parts }: Target) {
              if (had.has(parts.join("/"))) return false
              return (yield* kindAt(files, parts)) === "none"
            })
            yield* addVolumes(files, yield* Effect.filter(plan.cow, isNew), sources)
            const added = { ...plan, copies: yield* Effect.filter(plan.copies, isNew) }
            yield* addCopies(files, added, sources)
            yield* copyIntoShared(added, sources)
          })

          const upgrade = Effect.fn("InstanceFiles.upgrade")(function* (
            folder: string,
            base: BaseFolder,
            step: DefinitionStep,
            user?: RunUser
          ) {
            const { from, to } = step
            yield* recoverFiles(folder)
            const tree = join(folder, TREE)
            const files = instanceFolder(folder)
            const record = yield* readTreeRecord(tree)
            const empty = record === undefined && (yield* listFolder(files)).length === 0
            if (empty) return yield* make(folder, base, to, user) // a failed installation left no files
            const plan = yield* planOf(to, "create")
            // A source of the earlier definition may be gone.
            const before = yield* Effect.catch(planOf(from, "create"), () => planOf(from))
            yield* cleanFiles(folder)
            yield* close(folder)
            const owner = ownerFor(user)
            if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
            const replace = Effect.gen(function* () {
              if (record === undefined) yield* rebasePlain(folder, base, step, owner)
              else if (record.base !== base.generation) {
                // The layer of the server stays over the new base.
                yield* presenter.settle(base.generation, owner)
                yield* writeTreeRecord(tree, yield* withBase(record, base))
              }
            })
            yield* Effect.onError(replace, () => Effect.ignore(present(folder, from, likelyKind(from), user)))
            yield* present(folder, to, likelyKind(to), user)
            yield* addTemplates(folder, before, plan)
          })

          return { strategy: storage.strategy, make, open, renew, upgrade }
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
          { temporary }: { readonly temporary: boolean }
        ) {
          const limit = diskLimit(spec)
          if (limit === 0) return undefined
          const layered = (yield* readTreeRecord(join(folder, TREE))) !== undefined
          const enforced = limits.isEnforced(folder, layered)
          const { bytes, unmeasured } = sumOf([
            ...(enforced ? [] : [(yield* usage(folder, spec)).own]),
            ...(temporary ? [yield* temporarySize(folder)] : [])
          ])
          if (bytes <= limit && unmeasured === undefined) return undefined
          const over: OverLimit = { written: bytes, limit, unmeasured }
          return over
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
          register: (folder, spec) => {
            known.set(folder, spec)
          },
          moveAside: Effect.fnUntraced(function* (folder, to) {
            yield* rename(folder, to).pipe(orMissing(undefined))
            known.delete(folder)
            limits.rename(folder, to)
          }),
          forget: (folder) => {
            known.delete(folder)
            return limits.release(folder)
          }
        })
      })
    )
}
