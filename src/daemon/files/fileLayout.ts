/** Where the files of an instance lie, for access to them (spec 10.5). */
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import type { FilePlan, Shared } from "../../contract/domain/filePlan.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { type IoError, lstat } from "../disk/fsio.ts"
import type { makePlanOf } from "./fileContext.ts"
import type { OpenPath } from "./mounts.ts"
import { folderOf, type LayerFolders, overOf } from "./overlayTree.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { openSource, sharedSource } from "./sources.ts"
import { plainBase, plainPath, readTreeRecord, TREE } from "./treeRecord.ts"

/** An overlay of an instance: what the server has written there, and what lies below, the top one first. */
export interface WrittenLayer {
  readonly target: ReadonlyArray<string>
  readonly upper: string
  readonly lower: ReadonlyArray<string>
}

/** A part of an instance that lies elsewhere. It is opened at its source, whatever the server has put at its target. */
export interface SharedPart {
  readonly parts: ReadonlyArray<string>
  readonly layer: "volume" | "mount"
  readonly read_only: boolean
  readonly open: Effect.Effect<{ readonly handle: OpenPath; readonly folder: boolean }, IoError, Scope.Scope>
}

export interface FileLayout {
  readonly root: string
  /** The overlays, parents before children; none in a plain folder. */
  readonly written: ReadonlyArray<WrittenLayer>
  /** What a plain folder was copied from, and when, in ms since the epoch. */
  readonly copied: { readonly base: string; readonly since: number } | undefined
  /** Parents before children. */
  readonly shared: ReadonlyArray<SharedPart>
}

const partOf = (shared: Shared, at: LayerFolders): SharedPart => ({
  parts: shared.parts,
  layer: "volume" in shared.of ? "volume" : "mount",
  read_only: shared.read_only,
  open: Effect.flatMap(sharedSource(shared, at.sources), openSource)
})

const writtenLayers = Effect.fnUntraced(function* (folder: string, at: LayerFolders) {
  const tree = join(folder, TREE)
  const record = yield* readTreeRecord(tree)
  if (record === undefined) return []
  const base: WrittenLayer = {
    target: [],
    upper: join(tree, "upper"),
    lower: [join(at.generations, record.base)]
  }
  const nested = record.nested.map(
    ({ lower, target }, index): WrittenLayer => ({
      target,
      upper: join(overOf(tree, index), "upper"),
      lower: lower.map((layer) => folderOf(layer, tree, record, at).path)
    })
  )
  return [base, ...nested]
})

const copiedFrom = Effect.fnUntraced(function* (folder: string, { generations }: LayerFolders) {
  const base = yield* plainBase(folder)
  const stats = base === undefined ? undefined : yield* lstat(plainPath(folder))
  return base === undefined || stats === undefined
    ? undefined
    : { base: join(generations, base), since: stats.mtimeMs }
})

/** Returns the layout of an instance whose files are made. */
export const layoutOf = Effect.fnUntraced(function* (
  at: LayerFolders,
  planOf: ReturnType<typeof makePlanOf>,
  folder: string,
  spec: ServerSpec
) {
  const plan: FilePlan = yield* planOf(spec)
  const written = yield* writtenLayers(folder, at)
  return {
    root: instanceFolder(folder),
    written,
    copied: written.length > 0 ? undefined : yield* copiedFrom(folder, at),
    shared: plan.shared.map((shared) => partOf(shared, at))
  } satisfies FileLayout
})
