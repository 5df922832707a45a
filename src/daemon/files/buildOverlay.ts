/** How a new instance is made as an overlay: its layers first, then the files that are no layers. */
import { Effect } from "effect"
import { removeTree } from "../disk/fsio.ts"
import type { FilePlan } from "./filePlan.ts"
import { mounterOf, unmountBelow } from "./mounts.ts"
import { buildTree, type LayerFolders, mountName, mountTree, openTree } from "./overlayTree.ts"
import { chownAll, layersOf } from "./owners.ts"
import { addCopies, addVolumes } from "./plainTree.ts"
import { openShared, type SharedOwner, share } from "./sharedFiles.ts"
import type { Source } from "./sources.ts"
import { type TreeRecord, writeNewTreeRecord } from "./treeRecord.ts"

export interface OverlayOptions {
  /** The folder of the layers, empty or to be made, and where they are mounted meanwhile. */
  readonly building: { readonly tree: string; readonly files: string }
  readonly at: LayerFolders
  /** The generation of the base. */
  readonly generation: string
  readonly plan: FilePlan
  readonly to: SharedOwner
  /** Whether to copy a volume instead of using it as a layer. */
  readonly copyFirst: (source: Source) => boolean
  /** Whether mounts map the owner of layers. */
  readonly mapped: boolean
  /** Whether shared folders are mounted; else links lead to them. */
  readonly binds: boolean
}

/** Adds the files of an instance that are not layers, and the mount points. */
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
export const buildOverlay = Effect.fnUntraced(function* (options: OverlayOptions) {
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
