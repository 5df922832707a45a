import { Effect } from "effect"
import type { FilePlan } from "../../contract/domain/filePlan.ts"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { type IoError, makeFolder, removeTree } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copyIntoShared } from "./copyInside.ts"
import { copyOpened, copyTree } from "./copyTree.ts"
import { type FileContext, likelyKind, present, sharedOwner } from "./fileContext.ts"
import { mounterOf, unmountBelow } from "./mounts.ts"
import { type BaseFolder, buildTree, mountTree } from "./overlayTree.ts"
import { chownTree, layersOf, makeLike, ownerOf } from "./owners.ts"
import { openShared, type SharedOwner, share, sharingFor } from "./sharedFiles.ts"
import {
  copySource,
  type FileSources,
  makeTarget,
  openSource,
  type Source,
  templateSource
} from "./sources.ts"
import type { Storage } from "./storageProbe.ts"
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

/** A creation: its base, plan and owners, and the folders that are made. */
export interface Creating {
  readonly base: BaseFolder
  readonly plan: FilePlan
  readonly to: SharedOwner
  readonly tree: string
  /** The plain folder, or where the layers are mounted meanwhile. */
  readonly files: string
  /** Fills the folder in place of the templates and, in a plain folder, of the base. */
  readonly contents?: Effect.Effect<void, IoError>
}

const buildPlain = Effect.fnUntraced(function* (
  { at: { sources }, storage }: FileContext,
  { base, contents, files, plan, to }: Creating,
  kind: RuntimeKind
) {
  const way = storage.binds ? "place" : sharingFor(kind)
  if (contents === undefined) {
    yield* copyTree(base.folder, files)
    yield* addVolumes(files, plan.cow, sources)
  } else yield* contents
  yield* share(files, yield* openShared(plan, sources, way === "place" ? undefined : to), way, to)
  if (contents === undefined) yield* addCopies(files, plan, sources)
  if (to.owner !== undefined) yield* chownTree(files, to.owner)
}, Effect.scoped)

const fill = Effect.fnUntraced(function* (
  { at, storage: { binds, mapped } }: FileContext,
  { contents, files, plan, to, tree }: Creating,
  record: TreeRecord,
  single: FilePlan["cow"]
) {
  const { owner } = to
  const { sources } = at
  const shared = yield* openShared(plan, sources, binds ? undefined : to)
  const mounter = mounterOf(mapped.layers || mapped.binds)
  yield* mountTree(files, tree, record, { at, owner, mapped: mapped.layers }, mounter)
  yield* contents ?? addVolumes(files, single, sources)
  yield* share(files, shared, binds ? "place" : "link", to)
  if (contents === undefined) yield* addCopies(files, plan, sources)
  yield* unmountBelow(files)
  yield* removeTree(files)
  // Files made through mapped layers have the right owner.
  const copied = record.nested.some(({ lower }) => lower.some((layer) => layer.of === "own"))
  const given = mapped.layers && owner?.uid !== 0 && !copied && single.length + plan.copies.length === 0
  if (owner === undefined || given) return
  for (const layer of yield* layersOf(tree)) yield* chownTree(layer, owner)
}, Effect.scoped)

/** Makes the layers of an instance with their record, which it returns. Nothing is mounted when this returns. */
const buildOverlay = Effect.fnUntraced(function* (context: FileContext, creating: Creating) {
  const { at, storage, writers } = context
  const { base, plan, to, tree } = creating
  const isWritten = plan.cow.length === 0 ? () => false : yield* writers.isWritten
  const { files: single, record } = yield* buildTree({
    tree,
    plan,
    generation: base.generation,
    at,
    copyFirst: (source) => storage.reflink || isWritten(source),
    owner: to.owner,
    mapped: storage.mapped.layers
  })
  const isEmpty = plan.cow.length + plan.shared.length + plan.copies.length === 0
  if (!isEmpty || creating.contents !== undefined) yield* fill(context, creating, record, single)
  yield* writeNewTreeRecord(tree, record)
  return record
})

/** Makes new files aside: layers, whose record it returns, or a plain folder. A failure leaves nothing. */
export const buildAside = (
  context: FileContext,
  creating: Creating,
  {
    folder,
    isOverlay,
    spec
  }: { readonly folder: string; readonly spec: ServerSpec; readonly isOverlay: boolean }
) =>
  Effect.gen(function* () {
    const { files, tree } = creating
    if (!isOverlay) yield* makeFolder(files)
    yield* context.limits.begin(folder, spec, isOverlay ? tree : files)
    if (isOverlay) return yield* buildOverlay(context, creating)
    yield* buildPlain(context, creating, likelyKind(spec))
    return undefined
  }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))

/** Whether a base can be a layer for an owner: a mount maps its owner, or the owners are the same. */
const isLayer = Effect.fnUntraced(function* (
  base: string,
  { mapped, strategy }: Storage,
  owner: RunUser | undefined
) {
  if (strategy !== "overlay") return false
  if (mapped.layers || owner === undefined || owner.uid === 0) return true
  return (yield* ownerOf(base)).uid === owner.uid
})

export const makeCreation = (context: FileContext) =>
  Effect.fn("InstanceFiles.make")(function* (
    folder: string,
    base: BaseFolder,
    spec: ServerSpec,
    user?: RunUser
  ) {
    const { planOf, storage } = context
    const plan = yield* planOf(spec, "create")
    const to = sharedOwner(context, folder, user)
    const isOverlay = yield* isLayer(base.folder, storage, to.owner)
    const names = yield* recoverFiles(folder)
    yield* cleanFiles(folder, names)
    const replaces = hasInstance(names)
    const creating = { base, plan, to, ...building(folder) }
    const record = yield* buildAside(context, creating, { folder, spec, isOverlay })
    yield* swapIn(folder, isOverlay, replaces).pipe(
      Effect.andThen(present(context, folder, spec, likelyKind(spec), user, replaces ? undefined : record)),
      Effect.andThen(copyIntoShared(plan, context.at.sources)),
      Effect.andThen(isOverlay ? Effect.void : recordPlainBase(folder, base.generation)),
      Effect.onError(() => Effect.ignore(discardFiles(folder))),
      Effect.uninterruptible
    )
    if (replaces) yield* cleanFiles(folder)
  })
export type Creation = ReturnType<typeof makeCreation>
