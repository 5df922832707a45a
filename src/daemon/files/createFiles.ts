import { Effect } from "effect"
import type { FilePlan } from "../../contract/domain/filePlan.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { type IoError, makeFolder, removeTree } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copyIntoShared } from "./copyInside.ts"
import { copyOpened, copyTree } from "./copyTree.ts"
import { type FileContext, likelyKind } from "./fileContext.ts"
import { mounterOf, unmountBelow } from "./mounts.ts"
import {
  type BaseFolder,
  buildTree,
  type LayerFolders,
  mountName,
  mountTree,
  openTree
} from "./overlayTree.ts"
import { chownAll, layersOf, makeLike, ownerOf } from "./owners.ts"
import { openShared, type SharedOwner, share, sharingFor } from "./sharedFiles.ts"
import {
  copySource,
  type FileSources,
  makeTarget,
  openSource,
  type Source,
  templateSource
} from "./sources.ts"
import { building, cleanFiles, discardFiles, hasInstance, recoverFiles, swapIn } from "./swapFiles.ts"
import { recordPlainBase, type TreeRecord, writeNewTreeRecord } from "./treeRecord.ts"

const copyInto = Effect.fnUntraced(function* (source: Source, place: string) {
  yield* copyOpened(source.what, yield* openSource(source), place)
}, Effect.scoped)

export const addCopies = Effect.fnUntraced(function* (files: string, plan: FilePlan, sources: FileSources) {
  for (const entry of plan.copies) {
    if (entry.within !== undefined) continue
    yield* copyInto(yield* copySource(entry.copy, sources), yield* makeTarget(files, entry))
  }
})

export const addVolumes = Effect.fnUntraced(function* (
  files: string,
  volumes: FilePlan["cow"],
  sources: FileSources
) {
  for (const entry of volumes) {
    const source = yield* templateSource(entry.volume, sources)
    const place = yield* makeTarget(files, entry)
    yield* source === undefined ? makeLike(place, makeFolder(place)) : copyInto(source, place)
  }
})

const buildPlain = Effect.fnUntraced(function* (options: {
  readonly files: string
  readonly base: string
  readonly plan: FilePlan
  readonly sources: FileSources
  readonly share: (root: string) => Effect.Effect<unknown, IoError>
  readonly owner: RunUser | undefined
}) {
  const { base, files, owner, plan, share, sources } = options
  yield* copyTree(base, files)
  yield* addVolumes(files, plan.cow, sources)
  yield* share(files)
  yield* addCopies(files, plan, sources)
  if (owner !== undefined) yield* chownAll([files], owner)
})

interface OverlayOptions {
  /** The folder of the layers, empty or to be made, and where they are mounted meanwhile. */
  readonly building: { readonly tree: string; readonly files: string }
  readonly at: LayerFolders
  readonly generation: string
  readonly plan: FilePlan
  readonly to: SharedOwner
  /** Whether to copy a volume instead of using it as a layer. */
  readonly copyFirst: (source: Source) => boolean
  readonly mapped: boolean
  /** Whether shared folders are mounted; else links lead to them. */
  readonly binds: boolean
}

const fill = Effect.fnUntraced(function* (
  { at, binds, building: { files, tree }, mapped, plan, to }: OverlayOptions,
  record: TreeRecord,
  single: FilePlan["cow"]
) {
  const { owner } = to
  const { sources } = at
  const overlays = yield* openTree(tree, record, { at, owner, mapped })
  const shared = yield* openShared(plan, sources, binds ? undefined : to)
  yield* mountTree(files, overlays, mountName(record, owner), mounterOf(mapped || to.mapped))
  yield* addVolumes(files, single, sources)
  yield* share(files, shared, binds ? "place" : "link", to)
  yield* addCopies(files, plan, sources)
  yield* unmountBelow(files)
  yield* removeTree(files)
  // Files made through mapped layers have the right owner.
  const copied = record.nested.some(({ lower }) => lower.some((layer) => layer.of === "own"))
  const given = mapped && owner?.uid !== 0 && !copied && single.length + plan.copies.length === 0
  if (owner !== undefined && !given) yield* chownAll(yield* layersOf(tree), owner)
}, Effect.scoped)

/** Makes the layers of an instance with their record, which it returns. Nothing is mounted when this returns. */
const buildOverlay = Effect.fnUntraced(function* (options: OverlayOptions) {
  const { at, building, copyFirst, generation, mapped, plan, to } = options
  const { tree } = building
  const { owner } = to
  const { files: single, record } = yield* buildTree({
    tree,
    plan,
    generation,
    at,
    copyFirst,
    owner,
    mapped
  })
  const empty = plan.cow.length + plan.shared.length + plan.copies.length === 0
  if (!empty) yield* fill(options, record, single)
  yield* writeNewTreeRecord(tree, record)
  return record
})

export const makeCreation = (context: FileContext) => {
  const { at, limits, planOf, present, sharedOwner, sources, storage, writers } = context
  const mapped = storage.mapped.layers

  const shareAt = Effect.fnUntraced(function* (
    root: string,
    plan: FilePlan,
    way: "place" | "copy" | "link",
    to: SharedOwner
  ) {
    const given = way === "place" ? undefined : to
    return yield* share(root, yield* openShared(plan, sources, given), way, to)
  }, Effect.scoped)

  /** Whether a base can be a layer for an owner: a mount maps its owner, or the owners are the same. */
  const isLayer = Effect.fnUntraced(function* (base: string, owner: RunUser | undefined) {
    if (mapped || owner === undefined || owner.uid === 0) return true
    return (yield* ownerOf(base)).uid === owner.uid
  })

  const copyFirst = Effect.map(
    writers.isWritten,
    (isWritten) => (source: Source) => storage.reflink || isWritten(source)
  )

  return Effect.fn("InstanceFiles.make")(function* (
    folder: string,
    base: BaseFolder,
    spec: ServerSpec,
    user?: RunUser
  ) {
    const plan = yield* planOf(spec, "create")
    const to = sharedOwner(folder, user)
    const overlay = storage.strategy === "overlay" && (yield* isLayer(base.folder, to.owner))
    const names = yield* recoverFiles(folder)
    yield* cleanFiles(folder, names)
    const replaces = hasInstance(names)
    const record = yield* Effect.gen(function* () {
      const { files, tree } = building(folder)
      if (overlay) {
        const { generation } = base
        yield* limits.begin(folder, spec, tree)
        return yield* buildOverlay({
          building: { files, tree },
          at,
          generation,
          plan,
          to,
          copyFirst: plan.cow.length === 0 ? () => false : yield* copyFirst,
          mapped,
          binds: storage.binds
        })
      }
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
      return undefined
    }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
    yield* swapIn(folder, overlay, replaces).pipe(
      Effect.andThen(present(folder, spec, likelyKind(spec), user, replaces ? undefined : record)),
      Effect.andThen(copyIntoShared(plan, sources)),
      Effect.onError(() => Effect.ignore(discardFiles(folder))),
      Effect.uninterruptible
    )
    if (!overlay) yield* recordPlainBase(folder, base.generation)
    if (replaces) yield* cleanFiles(folder)
  })
}
export type Creation = ReturnType<typeof makeCreation>
