import * as fs from "node:fs/promises"
import { join, sep } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import type { InstanceStorage } from "../../domain/SystemInfo.ts"
import { type IoError, io, listFolder, makeFolder, removeTree } from "../disk/fsio.ts"
import type { RunUser, SharedFolder } from "../runtime/Runtime.ts"
import { makeAlone } from "./alone.ts"
import { carryOver } from "./carryOver.ts"
import { copyTree } from "./copyTree.ts"
import { diskLimit, openDiskLimits } from "./diskLimits.ts"
import { type DiskUsage, diskUsage } from "./diskUsage.ts"
import { type FilePlan, filePlan, isAbove } from "./filePlan.ts"
import { unmountBelow } from "./mounts.ts"
import {
  type BaseFolder,
  buildTree,
  giveBase,
  type LayerFolders,
  mountTree,
  withBase
} from "./overlayTree.ts"
import { addCopies, addVolumes, buildPlain } from "./plainTree.ts"
import { instanceFolder, makePresenter, wayFor } from "./presentFiles.ts"
import { share } from "./sharedFiles.ts"
import type { FileSources, Source } from "./sources.ts"
import { probeStorage, type StorageChoice } from "./storageProbe.ts"
import { building, cleanFiles, discardFiles, settleFiles, takePlace } from "./takePlace.ts"
import { generationsDir, readTreeRecord, TREE, writeTreeRecord } from "./treeRecord.ts"

export type { DiskUsage } from "./diskUsage.ts"
export { instanceFolder } from "./presentFiles.ts"
export type { FileSources } from "./sources.ts"

export interface InstanceFilesOptions {
  readonly base_dir: string
  readonly servers_dir: string
  readonly sources: FileSources
  /** Default `auto`. */
  readonly storage?: StorageChoice
  /** Whether mounts may be used where they work. Default true. */
  readonly mounts?: boolean
  /** Whether servers may run in containers, whose engine has to see the mounts. Default false. */
  readonly containers?: boolean
}

/** What a server will run in, as far as its files say; the start knows. */
export const likelyKind = ({ definition }: ServerSpec): RuntimeKind =>
  definition.image !== "" && definition.runtimes.includes("docker") ? "docker" : "process"
/**
 * The files of instances (blueprints.md, "Software"): made from a base folder, volumes and copies, on copies of write
 * where the node can, and seen at `instanceFolder`. What is mounted outlives this service, but not the machine.
 * Callers see to it that a server's files have one user at a time, and that no process of it runs where they change.
 */
export class InstanceFiles extends Context.Service<
  InstanceFiles,
  {
    /** How new instances are made on this node. */
    readonly strategy: InstanceStorage
    /**
     * Makes the files of a server anew; the old ones are there until the new are complete. `user`: who it runs as, and
     * is given what lies under its files, so that it need not be copied for that.
     */
    make(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /** Puts a new base under the files of a server: files of the base count, what only the server has stays. */
    renew(folder: string, base: BaseFolder, spec: ServerSpec, user?: RunUser): Effect.Effect<void, IoError>
    /** Sees to it that the files are all there to be used; answers what in them is shared with others. */
    open(
      folder: string,
      spec: ServerSpec,
      kind: RuntimeKind
    ): Effect.Effect<ReadonlyArray<SharedFolder>, IoError>
    /** Takes away what is mounted: the folder can be removed then. */
    close(folder: string): Effect.Effect<void, IoError>
    usage(folder: string, spec: ServerSpec): Effect.Effect<DiskUsage, IoError>
    /** What a server has written and what it may, in bytes, where that is more and nothing else has stopped it. */
    overLimit(
      folder: string,
      spec: ServerSpec
    ): Effect.Effect<{ readonly written: number; readonly limit: number } | undefined, IoError>
    /** Tells of a server of this node: a volume that it writes is no layer of another's. */
    know(folder: string, spec: ServerSpec): void
    /** A server has gone for good. */
    forget(folder: string): Effect.Effect<void>
  }
>()("muster/daemon/InstanceFiles") {
  static readonly layer = (options: InstanceFilesOptions) =>
    Layer.effect(
      InstanceFiles,
      Effect.gen(function* () {
        const { base_dir, servers_dir, sources } = options
        yield* Effect.orDie(makeFolder(sources.volumes_dir))
        const storage = yield* Effect.orDie(
          probeStorage(servers_dir, {
            choice: options.storage ?? "auto",
            mounts: options.mounts ?? true,
            shared: options.containers ?? false
          })
        )
        yield* Effect.logDebug(`instances are made by ${storage.strategy}`)
        const at: LayerFolders = { generations: generationsDir(base_dir), sources }
        const planOf = (spec: ServerSpec) => Effect.fromResult(filePlan(spec.definition))
        const limits = yield* Effect.orDie(openDiskLimits(servers_dir))
        const presented = makePresenter({ at, binds: storage.binds })
        const present = Effect.fnUntraced(function* (folder: string, spec: ServerSpec, kind: RuntimeKind) {
          yield* limits.confirm(folder, spec)
          return yield* presented(folder, yield* planOf(spec), kind)
        })
        const known = new Map<string, ServerSpec>()
        const { alone, forget } = makeAlone()

        const close = Effect.fn("InstanceFiles.close")((folder: string) => unmountBelow(folder))

        const open = Effect.fn("InstanceFiles.open")(function* (
          folder: string,
          spec: ServerSpec,
          kind: RuntimeKind
        ) {
          yield* settleFiles(folder)
          return yield* present(folder, spec, kind)
        }, Effect.uninterruptible)

        /** A volume that a server of this node writes must not change under one that has it as a layer. */
        const copyFirst = Effect.gen(function* () {
          const volumes = [...known.values()].flatMap((spec) => spec.definition.volumes)
          const written = new Set(volumes.flatMap(({ mode, source }) => (mode === "rw" ? [source] : [])))
          const found = yield* Effect.forEach(written, (source) =>
            io(source, () => fs.realpath(join(sources.volumes_dir, source))).pipe(
              Effect.orElseSucceed(() => undefined) // not made yet, or refused when it is to be
            )
          )
          const parts = found.flatMap((path) => (path === undefined ? [] : [path.split(sep)]))
          return ({ real }: Source) => {
            const own = real.split(sep)
            return storage.reflink || parts.some((one) => isAbove(one, own) || isAbove(own, one))
          }
        })

        const buildOverlay = Effect.fnUntraced(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec,
          plan: FilePlan,
          user: RunUser | undefined
        ) {
          const { files, tree } = building(folder)
          yield* makeFolder(tree)
          yield* limits.begin(folder, spec, tree)
          const { files: single, record } = yield* buildTree({
            tree,
            plan,
            generation: base.generation,
            at,
            copyFirst: yield* copyFirst,
            user
          })
          if (plan.cow.length + plan.shared.length + plan.copies.length > 0) {
            yield* mountTree(tree, record, files, at)
            yield* addVolumes(files, single, sources)
            yield* share(files, plan, sources, storage.binds ? "place" : "link")
            yield* addCopies(files, plan, sources)
            yield* unmountBelow(files)
            yield* removeTree(files)
          }
          yield* writeTreeRecord(tree, record)
        })

        const make = Effect.fn("InstanceFiles.make")(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec,
          user?: RunUser
        ) {
          const plan = yield* planOf(spec)
          const overlay = storage.strategy === "overlay"
          yield* settleFiles(folder)
          yield* cleanFiles(folder)
          yield* Effect.gen(function* () {
            yield* makeFolder(folder)
            if (overlay) yield* buildOverlay(folder, base, spec, plan, user)
            else {
              const way = storage.binds ? "place" : wayFor(likelyKind(spec))
              const { files } = building(folder)
              yield* makeFolder(files)
              yield* limits.begin(folder, spec, files)
              yield* buildPlain({ files, base: base.folder, plan, sources, way })
            }
          }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
          yield* takePlace(folder, overlay).pipe(
            Effect.andThen(present(folder, spec, likelyKind(spec))),
            Effect.onError(() => Effect.ignore(discardFiles(folder))),
            Effect.uninterruptible
          )
          yield* cleanFiles(folder)
        })

        const renew = Effect.fn("InstanceFiles.renew")(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec,
          user?: RunUser
        ) {
          yield* settleFiles(folder)
          const tree = join(folder, TREE)
          const files = instanceFolder(folder)
          const record = yield* readTreeRecord(tree)
          const empty = record === undefined && (yield* listFolder(files)).length === 0
          if (empty) return yield* make(folder, base, spec, user) // an installation that failed has left nothing
          yield* cleanFiles(folder)
          const back = Effect.ignore(present(folder, spec, likelyKind(spec)))
          // Nothing of the base is ever written into what is shared.
          yield* close(folder)
          if (record === undefined) yield* Effect.onError(copyTree(base.folder, files), () => back)
          else {
            yield* giveBase(base.folder, user)
            yield* carryOver({
              folder,
              record: yield* withBase(record, base),
              prepare: (tree) => limits.begin(folder, spec, tree),
              oldBase: join(at.generations, record.base),
              newBase: base.folder
            }).pipe(Effect.onError(() => back))
          }
          yield* present(folder, spec, likelyKind(spec))
        })

        const usage = Effect.fn("InstanceFiles.usage")(function* (folder: string, spec: ServerSpec) {
          return yield* diskUsage(folder, yield* planOf(spec))
        })

        const overLimit = Effect.fn("InstanceFiles.overLimit")(function* (folder: string, spec: ServerSpec) {
          const limit = diskLimit(spec)
          if (limit === 0) return undefined
          const layered = (yield* readTreeRecord(join(folder, TREE))) !== undefined
          if (limits.isEnforced(folder, layered)) return undefined
          const { overlay_bytes } = yield* usage(folder, spec)
          return overlay_bytes > limit ? { written: overlay_bytes, limit } : undefined
        })

        return InstanceFiles.of({
          strategy: storage.strategy,
          make: alone(make),
          renew: alone(renew),
          open: alone(open),
          close: alone(close),
          usage,
          overLimit,
          know: (folder, spec) => {
            known.set(folder, spec)
          },
          forget: (folder) => {
            known.delete(folder)
            forget(folder)
            return limits.release(folder)
          }
        })
      })
    )
}
