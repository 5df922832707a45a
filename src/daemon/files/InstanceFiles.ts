import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import type { InstanceStorage } from "../../domain/SystemInfo.ts"
import type { SharedFolder } from "../runtime/Runtime.ts"
import { carryOver, settleTree } from "./carryOver.ts"
import { copyTree, treeBytes } from "./copyTree.ts"
import { diskLimit, openDiskLimits } from "./diskLimits.ts"
import { type FilePlan, filePlan, isAbove } from "./filePlan.ts"
import { type IoError, listFolder, makeFolder, orMissing, removeTree, rename } from "./fsio.ts"
import { unmountBelow } from "./mounts.ts"
import { type BaseFolder, buildTree, type LayerFolders, mountTree, withBase } from "./overlayTree.ts"
import { addCopies, addVolumes, buildPlain } from "./plainTree.ts"
import { instanceFolder, makePresenter, wayFor } from "./presentFiles.ts"
import { share } from "./sharedFiles.ts"
import type { FileSources, Source } from "./sources.ts"
import { probeStorage, type StorageChoice } from "./storageProbe.ts"
import { generationsDir, readTreeRecord, TREE, writeTreeRecord } from "./treeRecord.ts"

export { instanceFolder } from "./presentFiles.ts"
export type { FileSources } from "./sources.ts"

/** What is on disk for one server alone, in bytes. */
export interface DiskUsage {
  /** All of it: with what was copied for it. */
  readonly disk_bytes: number
  /** What lies over the base and the volumes; of a copy, all of it: whose a block is cannot be told. */
  readonly overlay_bytes: number
}

export interface InstanceFilesOptions {
  readonly base_dir: string
  readonly servers_dir: string
  readonly sources: FileSources
  /** Default `auto`. */
  readonly storage?: StorageChoice
  /** Whether mounts may be used where they work. Default true. */
  readonly mounts?: boolean
}

const BUILDING = ["tree.building", "files.building", "tree.old", "files.old"] as const
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
    /** Makes the files of a server anew; the old ones are there until the new are complete. */
    make(folder: string, base: BaseFolder, spec: ServerSpec): Effect.Effect<void, IoError>
    /** Puts a new base under the files of a server: files of the base count, what only the server has stays. */
    renew(folder: string, base: BaseFolder, spec: ServerSpec): Effect.Effect<void, IoError>
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
          probeStorage(servers_dir, options.storage ?? "auto", options.mounts ?? true)
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

        /** Removes what was cut off; nothing of it counts. */
        const clean = Effect.fnUntraced(function* (folder: string) {
          for (const name of BUILDING) {
            yield* unmountBelow(join(folder, name))
            yield* removeTree(join(folder, name))
          }
        })

        const close = Effect.fn("InstanceFiles.close")((folder: string) => unmountBelow(folder))

        const open = Effect.fn("InstanceFiles.open")(function* (
          folder: string,
          spec: ServerSpec,
          kind: RuntimeKind
        ) {
          yield* settle(folder)
          return yield* present(folder, spec, kind)
        }, Effect.uninterruptible)

        /** A change of the layers that was cut off is ended, or taken back. */
        const settle = Effect.fnUntraced(function* (folder: string) {
          const names = yield* listFolder(folder)
          if (!names.some((name) => name === "tree.next" || name === "tree.old")) return
          yield* unmountBelow(folder)
          yield* settleTree(folder)
        })

        /** Puts the new files, complete, in the place of the old; `made` is a tree or a plain folder. */
        const takePlace = Effect.fnUntraced(function* (folder: string, made: { readonly tree: boolean }) {
          const files = instanceFolder(folder)
          yield* close(folder)
          yield* rename(files, join(folder, "files.old")).pipe(orMissing(undefined))
          yield* rename(join(folder, TREE), join(folder, "tree.old")).pipe(orMissing(undefined))
          if (made.tree) {
            yield* makeFolder(files)
            yield* rename(join(folder, "tree.building"), join(folder, TREE))
          } else yield* rename(join(folder, "files.building"), files)
        })

        /** A volume that a server of this node writes must not change under one that has it as a layer. */
        const copyFirst = (source: Source) => {
          if (storage.reflink) return true
          const parts = source.real.slice((source.roots[0] ?? "").length + 1).split("/")
          const written = [...known.values()].flatMap(({ definition }) =>
            definition.volumes.flatMap(({ mode, source: path }) => (mode === "rw" ? [path.split("/")] : []))
          )
          return written.some((one) => isAbove(one, parts) || isAbove(parts, one))
        }

        const buildOverlay = Effect.fnUntraced(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec,
          plan: FilePlan
        ) {
          const tree = join(folder, "tree.building")
          const files = join(folder, "files.building")
          yield* makeFolder(tree)
          yield* limits.begin(folder, spec, tree)
          const { files: single, record } = yield* buildTree({
            tree,
            plan,
            generation: base.generation,
            at,
            copyFirst
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

        const discard = Effect.fnUntraced(function* (folder: string) {
          yield* close(folder)
          yield* removeTree(join(folder, TREE))
          yield* removeTree(instanceFolder(folder))
        })

        const make = Effect.fn("InstanceFiles.make")(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec
        ) {
          const plan = yield* planOf(spec)
          const overlay = storage.strategy === "overlay"
          yield* settle(folder)
          yield* clean(folder)
          yield* Effect.gen(function* () {
            yield* makeFolder(folder)
            if (overlay) yield* buildOverlay(folder, base, spec, plan)
            else {
              const way = storage.binds ? "place" : wayFor(likelyKind(spec))
              const files = join(folder, "files.building")
              yield* makeFolder(files)
              yield* limits.begin(folder, spec, files)
              yield* buildPlain({ files, base: base.folder, plan, sources, way })
            }
          }).pipe(Effect.onError(() => Effect.ignore(clean(folder))))
          yield* takePlace(folder, { tree: overlay }).pipe(
            Effect.andThen(present(folder, spec, likelyKind(spec))),
            Effect.onError(() => Effect.ignore(discard(folder))),
            Effect.uninterruptible
          )
          yield* clean(folder)
        })

        const renew = Effect.fn("InstanceFiles.renew")(function* (
          folder: string,
          base: BaseFolder,
          spec: ServerSpec
        ) {
          yield* settle(folder)
          const tree = join(folder, TREE)
          const files = instanceFolder(folder)
          const record = yield* readTreeRecord(tree)
          const empty = record === undefined && (yield* listFolder(files)).length === 0
          if (empty) return yield* make(folder, base, spec) // an installation that failed has left nothing
          yield* clean(folder)
          const back = Effect.ignore(present(folder, spec, likelyKind(spec)))
          // Nothing of the base is ever written into what is shared.
          yield* close(folder)
          if (record === undefined) yield* Effect.onError(copyTree(base.folder, files), () => back)
          else {
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
          const tree = join(folder, TREE)
          const record = yield* readTreeRecord(tree)
          if (record === undefined) {
            const files = instanceFolder(folder)
            const plan = yield* planOf(spec)
            const skip = new Set(plan.shared.map(({ parts }) => [files, ...parts].join("/")))
            const bytes = yield* treeBytes(files, skip)
            return { disk_bytes: bytes, overlay_bytes: bytes }
          }
          const uppers = ["upper", ...record.nested.map((_, index) => join(`over.${index}`, "upper"))]
          const own = (yield* listFolder(tree)).filter((name) => name.startsWith("lower."))
          const sum = Effect.fnUntraced(function* (names: ReadonlyArray<string>) {
            let bytes = 0
            for (const name of names) bytes += yield* treeBytes(join(tree, name))
            return bytes
          })
          const overlay_bytes = yield* sum(uppers)
          return { disk_bytes: overlay_bytes + (yield* sum(own)), overlay_bytes }
        })

        const overLimit = Effect.fn("InstanceFiles.overLimit")(function* (folder: string, spec: ServerSpec) {
          const limit = diskLimit(spec)
          if (limit === 0 || limits.isEnforced(folder)) return undefined
          const { overlay_bytes } = yield* usage(folder, spec)
          return overlay_bytes > limit ? { written: overlay_bytes, limit } : undefined
        })

        return InstanceFiles.of({
          strategy: storage.strategy,
          make,
          renew,
          open,
          close,
          usage,
          overLimit,
          know: (folder, spec) => {
            known.set(folder, spec)
          },
          forget: (folder) => {
            known.delete(folder)
            return limits.release(folder)
          }
        })
      })
    )
}
