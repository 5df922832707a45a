/** Volumes with `rw` or `ro`, and mounts, in the instance folder. */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { io, lstat, removeTree } from "../disk/fsio.ts"
import type { MountEntry } from "../disk/mountTable.ts"
import type { SharedFolder } from "../runtime/Runtime.ts"
import { copyOpened } from "./copyTree.ts"
import type { FilePlan } from "./filePlan.ts"
import { isSame, mountAgain } from "./mounts.ts"
import { mountPoint } from "./overlayTree.ts"
import { type FileSources, openSource, placeFor, sharedSource } from "./sources.ts"

/**
 * How they get there. `mount`: mounted, read-only where it says so, for all that look there. Where that is not
 * allowed: links; and for `ro` a copy, so that the source cannot be changed whatever happens (`copy`), or a link where
 * the runtime itself sees to that (`link`). `place`: only what they are mounted at.
 */
export type SharedWay = "mount" | "copy" | "link" | "place"

const isLinkTo = Effect.fnUntraced(function* (place: string, real: string) {
  const stats = yield* lstat(place)
  return stats?.isSymbolicLink() === true && (yield* io(place, () => fs.readlink(place))) === real
})

/** Puts what is shared into the folder `root`; answers it as the runtime has to know it. */
export const share = Effect.fnUntraced(function* (
  root: string,
  plan: FilePlan,
  sources: FileSources,
  way: SharedWay
) {
  const folders: Array<SharedFolder> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    const known = { path: source.real, read_only: shared.read_only, volume: "volume" in shared.of }
    const opened = yield* openSource(source)
    if (way === "mount" || way === "place") {
      const place = yield* mountPoint(root, shared, opened.folder)
      if (way === "mount") yield* mountAgain(place, opened.handle, shared.read_only)
      folders.push({ ...known, target: place })
      continue
    }
    const place = yield* placeFor(root, shared)
    if (way === "copy" && shared.read_only) {
      yield* copyOpened(source.what, opened, place, { mirror: true })
      continue
    }
    folders.push(known)
    if (yield* isLinkTo(place, source.real)) continue
    yield* removeTree(place)
    yield* io(`create link ${place}`, () => fs.symlink(source.real, place))
  }
  return folders
}, Effect.scoped)

/**
 * What is shared, as the runtime has to know it; undefined unless it is all mounted where it belongs. `real` is the
 * folder as the mount table names it.
 */
export const sharedMounts = Effect.fnUntraced(function* (
  root: string,
  real: string,
  plan: FilePlan,
  sources: FileSources,
  mounts: ReadonlyArray<MountEntry>
) {
  const folders: Array<SharedFolder> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    const place = [real, ...shared.parts].join("/")
    const [mount, ...others] = mounts.filter((entry) => entry.path === place)
    if (mount === undefined || others.length > 0 || mount.read_only !== shared.read_only) return undefined
    const { handle } = yield* openSource(source)
    if (!(yield* isSame(handle, place))) return undefined
    folders.push({
      path: source.real,
      read_only: shared.read_only,
      volume: "volume" in shared.of,
      target: join(root, ...shared.parts)
    })
  }
  return folders
}, Effect.scoped)
