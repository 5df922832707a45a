import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { containerPath, type FilePlan, type Shared } from "../../contract/domain/filePlan.ts"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import { closeFolder, IoError, io, lstat, mountsAt, orMissing, removeTree } from "../disk/fsio.ts"
import type { RunUser, SharedFolder } from "../runtime/Runtime.ts"
import { copyOpened } from "./copyTree.ts"
import { isShownAt, type Mounter, type OpenPath } from "./mounts.ts"
import { mountName, mountPoint } from "./overlayTree.ts"
import { chownVolume, shownTo } from "./owners.ts"
import { type FileSources, makeTarget, openSource, type Source, sharedSource } from "./sources.ts"
import type { TreeRecord } from "./treeRecord.ts"

/** How sources are shared: mounts, links and copies (`copy`), links with `ro` (`link`), mount points (`place`). */
export type SharingMethod = Mounter | "copy" | "link" | "place"

const isLinkTo = Effect.fnUntraced(function* (place: string, real: string) {
  const stats = yield* lstat(place)
  return stats?.isSymbolicLink() === true && (yield* io(place, () => fs.readlink(place))) === real
})

export interface SharedOwner {
  /** The owner of the server's files, unless each file keeps its owner. */
  readonly owner: RunUser | undefined
  readonly hasOwnUid: boolean
  readonly volumes: RunUser
  /** Whether a mount can show them as the server's. */
  readonly mapped: boolean
  readonly writers: (real: string) => Effect.Effect<ReadonlyArray<string>, IoError>
}

/** Gives a written volume to the common user of all volumes or, without mapping mounts, to its one server. */
const chownShared = Effect.fnUntraced(function* (source: Source, to: SharedOwner) {
  const { hasOwnUid, mapped, owner, volumes, writers } = to
  if (owner === undefined || owner.uid === 0) return
  if (!hasOwnUid || mapped) return yield* chownVolume(source.real, volumes)
  const [other] = yield* writers(source.real)
  if (other !== undefined) {
    return yield* new IoError({
      code: "REFUSED",
      message: `state.volumes: ${source.what} is also written by ${other}, and each server of this node has its own user`,
      next: "let the daemon mount with mapped owners (CAP_SYS_ADMIN, Linux 5.12, perl), or give each server a volume of its own"
    })
  }
  yield* chownVolume(source.real, owner)
  yield* closeFolder(source.real)
})

/** Returns how an open source is shown. All containers have one user; a folder of root is never written as root. */
const shownOf = (shared: Shared, handle: OpenPath, to: SharedOwner) => {
  if (!to.hasOwnUid || !to.mapped) return undefined
  const shown = shownTo(to.owner, handle)
  return shown?.owner.uid === 0 && !shared.read_only ? undefined : shown
}

export interface OpenShared {
  readonly shared: Shared
  readonly source: Source
  readonly opened: Effect.Success<ReturnType<typeof openSource>>
}

/** Opens shared sources for the scope. `to`: sets the owner of volumes that the server writes. */
export const openShared = Effect.fnUntraced(function* (
  plan: FilePlan,
  sources: FileSources,
  to: SharedOwner | undefined
) {
  const opened: Array<OpenShared> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    if (to !== undefined && "volume" in shared.of && !shared.read_only) yield* chownShared(source, to)
    opened.push({ shared, source, opened: yield* openSource(source) })
  }
  return opened
})

const knownOf = ({ of, read_only }: Shared, { real }: Source): SharedFolder => {
  const inside = "mount" in of ? containerPath(of.mount) : undefined
  const known = { path: real, read_only, volume: "volume" in of }
  return inside === undefined ? known : { ...known, inside }
}

/** Puts shared sources into the folder `root`; returns them for the runtime. */
export const share = Effect.fnUntraced(function* (
  root: string,
  all: ReadonlyArray<OpenShared>,
  given: SharingMethod,
  to: SharedOwner
) {
  const folders: Array<SharedFolder> = []
  for (const { opened, shared, source } of all) {
    const known = knownOf(shared, source)
    const mounted = typeof given === "object"
    // A mount without a map would show files that the server cannot read.
    const method = mounted && shared.read_only && to.hasOwnUid && !to.mapped ? "copy" : given
    if (method === "place" || typeof method === "object") {
      const place = yield* mountPoint(root, shared, opened.folder)
      if (method !== "place") {
        const shown = shownOf(shared, opened.handle, to)
        yield* method.bind(place, opened.handle, shared.read_only, shown)
      }
      folders.push({ ...known, target: place })
      continue
    }
    const place = yield* makeTarget(root, shared)
    if (method === "copy" && shared.read_only) {
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

export const instanceFolder = (folder: string): string => join(folder, "files")

/** Returns the method for nodes without mounts: containers get links, and the engine enforces `ro`. */
export const sharingFor = (kind: RuntimeKind): "copy" | "link" => (kind === "docker" ? "link" : "copy")

/** Returns the shared folders of a server whose files are mounted, unless a mount is missing. */
export const mountedFolders = Effect.fnUntraced(function* (
  files: string,
  record: TreeRecord | undefined,
  plan: FilePlan,
  sources: FileSources,
  to: SharedOwner
) {
  const real = yield* io(files, () => fs.realpath(files)).pipe(orMissing(files))
  const mounts = yield* mountsAt(files)
  const overlays =
    record === undefined ? [] : [real, ...record.nested.map((one) => [real, ...one.target].join("/"))]
  const ours = mounts.filter(
    ({ source, type }) => type === "overlay" && record !== undefined && source === mountName(record, to.owner)
  )
  if (mounts.length !== overlays.length + plan.shared.length) return undefined
  if (ours.map(({ path }) => path).join("\0") !== overlays.join("\0")) return undefined
  const folders: Array<SharedFolder> = []
  for (const shared of plan.shared) {
    const source = yield* sharedSource(shared, sources)
    const place = [real, ...shared.parts].join("/")
    const [mount, ...others] = mounts.filter((entry) => entry.path === place)
    if (mount === undefined || others.length > 0 || mount.read_only !== shared.read_only) return undefined
    const { handle } = yield* openSource(source)
    if (!(yield* isShownAt(handle, place, shownOf(shared, handle, to)))) return undefined
    folders.push({ ...knownOf(shared, source), target: join(files, ...shared.parts) })
  }
  return folders
}, Effect.scoped)
