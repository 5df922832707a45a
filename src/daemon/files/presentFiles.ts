import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Semaphore } from "effect"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import { closeFolder, io, makePassage, mountsAt, orMissing } from "../disk/fsio.ts"
import type { FilePlan } from "./filePlan.ts"
import { mounterOf, unmountBelow } from "./mounts.ts"
import { type LayerFolders, mountName, mountTree, openTree } from "./overlayTree.ts"
import { chownParts, chownTree, foreignParts } from "./owners.ts"
import { openShared, type SharedOwner, share, sharedMounts } from "./sharedFiles.ts"
import { readTreeRecord, TREE, type TreeRecord } from "./treeRecord.ts"

/** The folder of a server that its process sees. */
export const instanceFolder = (folder: string): string => join(folder, "files")

/** Returns the method for nodes without mounts: containers get links, and the engine enforces `ro`. */
export const sharingFor = (kind: RuntimeKind): "copy" | "link" => (kind === "docker" ? "link" : "copy")

/** Trees that are mounted at the same time. */
const CONCURRENCY = 4

/** Returns the shared folders if everything is mounted; undefined: a mount is missing. */
const found = Effect.fnUntraced(function* (
  files: string,
  record: TreeRecord | undefined,
  plan: FilePlan,
  at: LayerFolders,
  to: SharedOwner
) {
  const real = yield* io(files, () => fs.realpath(files)).pipe(orMissing(files))
  const mounts = yield* mountsAt(files)
  const overlays =
    record === undefined ? [] : [real, ...record.nested.map((one) => [real, ...one.target].join("/"))]
  const ours = mounts.filter(
    ({ source, type }) => type === "overlay" && record !== undefined && source === mountName(record, to.owner)
  )
  const complete =
    mounts.length === overlays.length + plan.shared.length &&
    ours.map(({ path }) => path).join("\0") === overlays.join("\0")
  return complete ? yield* sharedMounts(files, real, plan, at.sources, mounts, to) : undefined
})

export interface PresentOptions {
  readonly at: LayerFolders
  readonly binds: boolean
  readonly mapped: boolean
}

export const makePresent = ({ at, binds, mapped }: PresentOptions) => {
  const turn = Semaphore.makeUnsafe(CONCURRENCY)
  /** A separate limit: a server whose files are ready does not wait for changes of owners. */
  const chownPermits = Semaphore.makeUnsafe(CONCURRENCY)

  /** @param made the record of layers that were just made for the owner, with nothing mounted */
  const present = Effect.fnUntraced(function* (
    folder: string,
    plan: FilePlan,
    kind: RuntimeKind,
    to: SharedOwner,
    made?: TreeRecord
  ) {
    const { hasOwnUid, owner } = to
    const files = instanceFolder(folder)
    const tree = join(folder, TREE)
    const record = made ?? (yield* readTreeRecord(tree))
    const foreign = owner === undefined || made !== undefined ? [] : yield* foreignParts(folder, files, owner)
    if (owner !== undefined && foreign.length > 0) {
      yield* unmountBelow(folder)
      yield* chownPermits.withPermit(chownParts(foreign, owner))
    }
    if (hasOwnUid) yield* makePassage(folder)
    if (record === undefined && !binds) {
      if (hasOwnUid) yield* closeFolder(files)
      return yield* share(files, yield* openShared(plan, at.sources, to), sharingFor(kind), to)
    }
    if (made === undefined) {
      const there = yield* found(files, record, plan, at, to)
      if (there !== undefined) return there
      yield* unmountBelow(folder)
    }
    return yield* Effect.gen(function* () {
      const overlays = record === undefined ? [] : yield* openTree(tree, record, { at, owner, mapped })
      const shared = yield* openShared(plan, at.sources, to)
      const mounter = mounterOf(mapped || to.mapped)
      if (record !== undefined) {
        yield* mountTree(files, overlays, mountName(record, owner), mounter)
        // Without mapping, the base is copied for the server.
        if (!mapped && owner !== undefined && owner.uid !== 0) yield* chownTree(files, owner)
      }
      if (hasOwnUid) yield* closeFolder(files)
      return yield* share(files, shared, binds ? mounter : sharingFor(kind), to)
    }).pipe(
      Effect.scoped,
      turn.withPermit,
      Effect.onError(() => Effect.ignore(unmountBelow(folder)))
    )
  }, Effect.scoped)

  return present
}
