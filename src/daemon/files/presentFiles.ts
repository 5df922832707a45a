/** Sees to it that the files of an instance are all there at its folder, mounted where they have to be. */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Semaphore } from "effect"
import type { RuntimeKind } from "../../domain/Node.ts"
import { io, mountsAt, orMissing } from "../disk/fsio.ts"
import type { FilePlan } from "./filePlan.ts"
import { unmountBelow } from "./mounts.ts"
import { type LayerFolders, mountName, mountTree } from "./overlayTree.ts"
import { type SharedWay, share, sharedMounts } from "./sharedFiles.ts"
import { readTreeRecord, TREE, type TreeRecord } from "./treeRecord.ts"

/** The folder of a server that its process sees. */
export const instanceFolder = (folder: string): string => join(folder, "files")

/** Where nothing can be mounted: containers see links, and that `ro` is read-only is the engine's doing. */
export const wayFor = (kind: RuntimeKind): SharedWay => (kind === "docker" ? "link" : "copy")

/** Trees that are mounted at the same time. */
const AT_ONCE = 4

/** What is shared, where all that has to be mounted is mounted already; undefined where something is missing. */
const found = Effect.fnUntraced(function* (
  files: string,
  record: TreeRecord | undefined,
  plan: FilePlan,
  at: LayerFolders
) {
  const real = yield* io(files, () => fs.realpath(files)).pipe(orMissing(files))
  const mounts = yield* mountsAt(files)
  const overlays =
    record === undefined ? [] : [real, ...record.nested.map((one) => [real, ...one.target].join("/"))]
  const ours = mounts.filter(
    ({ source, type }) => type === "overlay" && record !== undefined && source === mountName(record)
  )
  const complete =
    mounts.length === overlays.length + plan.shared.length &&
    ours.map(({ path }) => path).join("\0") === overlays.join("\0")
  return complete ? yield* sharedMounts(files, real, plan, at.sources, mounts) : undefined
})

/** @param options.binds whether files and folders can be mounted a second time */
export const makePresenter = (options: { readonly at: LayerFolders; readonly binds: boolean }) => {
  const { at, binds } = options
  const turn = Semaphore.makeUnsafe(AT_ONCE)
  return Effect.fnUntraced(function* (folder: string, plan: FilePlan, kind: RuntimeKind) {
    const files = instanceFolder(folder)
    const tree = join(folder, TREE)
    const record = yield* readTreeRecord(tree)
    if (record === undefined && !binds) return yield* share(files, plan, at.sources, wayFor(kind))
    const there = yield* found(files, record, plan, at)
    if (there !== undefined) return there
    yield* unmountBelow(folder)
    return yield* Effect.gen(function* () {
      if (record !== undefined) yield* mountTree(tree, record, files, at)
      return yield* share(files, plan, at.sources, binds ? "mount" : wayFor(kind))
    }).pipe(
      turn.withPermit,
      Effect.onError(() => Effect.ignore(unmountBelow(folder)))
    )
  })
}
