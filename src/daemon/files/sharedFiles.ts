/** Volumes with `rw` or `ro`, and mounts, in the instance folder. */

import type { FileHandle } from "node:fs/promises"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { closeFolder, IoError, io, lstat, removeTree } from "../disk/fsio.ts"
import type { MountEntry } from "../disk/mountTable.ts"
import type { RunUser, SharedFolder } from "../runtime/Runtime.ts"
import { chownVolume } from "./chownVolume.ts"
import { copyOpened } from "./copyTree.ts"
import type { FilePlan, Shared } from "./filePlan.ts"
import { isShownAt, type Mounter } from "./mounts.ts"
import { mountPoint } from "./overlayTree.ts"
import { shownTo } from "./owners.ts"
import { type FileSources, openSource, placeFor, type Source, sharedSource } from "./sources.ts"

/**
 * How they get there. By a mounter: mounted, read-only where it says so, for all that look there. Where that is not
 * allowed: links; and for `ro` a copy, so that the source cannot be changed whatever happens (`copy`), or a link where
 * the runtime itself sees to that (`link`). `place`: only what they are mounted at.
 */
export type SharedWay = Mounter | "copy" | "link" | "place"

const isLinkTo = Effect.fnUntraced(function* (place: string, real: string) {
  const stats = yield* lstat(place)
  return stats?.isSymbolicLink() === true && (yield* io(place, () => fs.readlink(place))) === real
})

/** The owner of what servers share. */
export interface SharedOwner {
  /** The user that the files of the server belong to; absent: each to its own. */
  readonly owner: RunUser | undefined
  /** Whether the server has its uid for itself. */
  readonly alone: boolean
  /** The user that volumes belong to which servers write. */
  readonly volumes: RunUser
  /** Whether a mount can show them as the server's own. */
  readonly mapped: boolean
  /** Ids of other servers of this node that write a volume. */
  readonly writers: (real: string) => Effect.Effect<ReadonlyArray<string>, IoError>
}

/**
 * Gives a volume that a server writes to the one user that all volumes belong to, so that each server is shown its files
 * as its own. Where that is not possible, to the one server that writes it.
 */
const giveShared = Effect.fnUntraced(function* (source: Source, to: SharedOwner) {
  const { alone, mapped, owner, volumes, writers } = to
  if (owner === undefined || owner.uid === 0) return
  if (!alone || mapped) return yield* chownVolume(source.real, volumes)
  const [other] = yield* writers(source.real)
  if (other !== undefined) {
    return yield* new IoError({
      code: "REFUSED",
      message: `state.volumes: ${source.what} is written by ${other}, too, and servers of this node have users of their own`,
      next: "let the daemon mount with mapped owners (CAP_SYS_ADMIN, Linux 5.12, perl), or give each server a volume of its own"
    })
  }
  yield* chownVolume(source.real, owner)
  yield* closeFolder(source.real)
})

/** How an open source has to be shown. Containers have one user for all; a folder of root is never written as root. */
const shownOf = Effect.fnUntraced(function* (shared: Shared, handle: FileHandle, to: SharedOwner) {
  if (!to.alone || !to.mapped) return undefined
  const shown = yield* shownTo(to.owner, handle)
  return shown?.owner.uid === 0 && !shared.read_only ? undefined : shown
})

/** What is shared, its source open. */
export interface OpenShared {
  readonly shared: Shared
  readonly source: Source
  readonly opened: Effect.Success<ReturnType<typeof openSource>>
}

/** Opens what is shared, for the scope. `to`: volumes that the server writes are given to whom they have to belong. */
export const openShared = Effect.fnUntraced(function* (
  plan: FilePlan,
  sources: FileSources,
  to: SharedOwner | undefined
) {
  const opened: Array<OpenShared> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    if (to !== undefined && "volume" in shared.of && !shared.read_only) yield* giveShared(source, to)
    opened.push({ shared, source, opened: yield* openSource(source) })
  }
  return opened
})

/** Puts what is shared into the folder `root`; answers it as the runtime has to know it. */
export const share = Effect.fnUntraced(function* (
  root: string,
  all: ReadonlyArray<OpenShared>,
  given: SharedWay,
  to: SharedOwner
) {
  const folders: Array<SharedFolder> = []
  for (const { opened, shared, source } of all) {
    const known = { path: source.real, read_only: shared.read_only, volume: "volume" in shared.of }
    const mounted = typeof given === "object"
    // A mount that shows files as they are would show some that the server cannot read.
    const way = mounted && shared.read_only && to.alone && !to.mapped ? "copy" : given
    if (way === "place" || typeof way === "object") {
      const place = yield* mountPoint(root, shared, opened.folder)
      if (way !== "place") {
        const shown = yield* shownOf(shared, opened.handle, to)
        yield* way.again(place, opened.handle, shared.read_only, shown)
      }
      folders.push({ ...known, target: place })
      continue
    }
    const place = yield* placeFor(root, shared)
    if (way === "copy" && shared.read_only) {
      yield* copyOpened(source.what, opened, place, { mirror: true, owner: to.owner })
      continue
    }
    folders.push(known)
    if (yield* isLinkTo(place, source.real)) continue
    yield* removeTree(place)
    yield* io(`create link ${place}`, () => fs.symlink(source.real, place))
  }
  return folders
})

/**
 * What is shared, as the runtime has to know it; undefined unless it is all mounted where it belongs. `real` is the
 * folder as the mount table names it.
 */
export const sharedMounts = Effect.fnUntraced(function* (
  root: string,
  real: string,
  plan: FilePlan,
  sources: FileSources,
  mounts: ReadonlyArray<MountEntry>,
  to: SharedOwner
) {
  const folders: Array<SharedFolder> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    const place = [real, ...shared.parts].join("/")
    const [mount, ...others] = mounts.filter((entry) => entry.path === place)
    if (mount === undefined || others.length > 0 || mount.read_only !== shared.read_only) return undefined
    const { handle } = yield* openSource(source)
    if (!(yield* isShownAt(handle, place, yield* shownOf(shared, handle, to)))) return undefined
    folders.push({
      path: source.real,
      read_only: shared.read_only,
      volume: "volume" in shared.of,
      target: join(root, ...shared.parts)
    })
  }
  return folders
}, Effect.scoped)
