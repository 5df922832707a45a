/** Instances whose files are overlay mounts: the server writes to its own layers (see treeRecord.ts). */

import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import { realpath } from "node:fs/promises"
import { join, relative, sep } from "node:path"
import { Effect } from "effect"
import { type FilePlan, isAbove } from "../../contract/domain/filePlan.ts"
import { IoError, io, ioSync, lstatSync, makeFolder, orMissing, removeTree } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copyOpened } from "./copyTree.ts"
import { type Mounter, type OverlayLayers, openToMount } from "./mounts.ts"
import { isUniform, makeLike, ownerOf, shownTo } from "./owners.ts"
import { type FileSources, kindAt, makeTarget, openSource, type Source, templateSource } from "./sources.ts"
import type { Nested, TreeLayer, TreeRecord } from "./treeRecord.ts"

export interface LayerFolders {
  readonly generations: string
  readonly sources: FileSources
}

export interface BaseFolder {
  readonly folder: string
  readonly generation: string
}

/** Returns the source of a mount in the mount table: the record, and the owner of the files. */
export const mountName = (record: Pick<TreeRecord, "id">, owner: RunUser | undefined): string =>
  owner === undefined ? `muster-${record.id}` : `muster-${record.id}-${owner.uid}`

export const overOf = (tree: string, index: number) => join(tree, `over.${index}`)

/** Makes a folder with the permissions of another, and with its owner unless one is given. */
export const makeFolderLike = Effect.fnUntraced(function* (
  path: string | Buffer,
  like: string | Buffer,
  owner?: RunUser
) {
  const stats = yield* ioSync(`stat ${like}`, () => fs.statSync(like))
  yield* makeFolder(path)
  yield* ioSync(`set owner and permissions of ${path}`, () => {
    const { gid, uid } = owner ?? stats
    if (process.geteuid?.() === 0) fs.chownSync(path, uid, gid)
    fs.chmodSync(path, stats.mode & 0o1777)
  })
})

const makeUpper = Effect.fnUntraced(function* (folder: string, like: string, owner: RunUser | undefined) {
  // Without it, `mkdir` of the folders below fails once before it makes their parent.
  yield* makeFolder(folder)
  yield* makeFolderLike(join(folder, "upper"), like, owner)
  yield* makeFolder(join(folder, "work"))
})

export const folderOf = (
  layer: TreeLayer,
  tree: string,
  record: Pick<TreeRecord, "base">,
  at: LayerFolders
) => {
  const root = {
    base: join(at.generations, record.base),
    volumes: at.sources.volumesDir,
    own: tree
  }[layer.of]
  return { root, path: join(root, ...layer.parts) }
}

const openLayer = Effect.fnUntraced(function* (
  layer: TreeLayer,
  tree: string,
  record: Pick<TreeRecord, "base">,
  at: LayerFolders
) {
  const { path, root } = folderOf(layer, tree, record, at)
  const name = layer.parts.join("/")
  const what = layer.of === "volumes" ? `volumes/${name}` : "base folder"
  const missing = new IoError({
    code: "REFUSED",
    message: layer.of === "volumes" ? `${what} is missing` : "the base folder of the server is missing",
    next: layer.of === "volumes" ? "restore it" : "reinstall it"
  })
  // Volumes may be on disks of operators, and all else is in the folder of the node.
  const realOf = (place: string) =>
    (layer.of === "volumes"
      ? io(what, () => realpath(place))
      : ioSync(what, () => fs.realpathSync.native(place))
    ).pipe(orMissing(undefined))
  const top = yield* realOf(root)
  const real = path === root ? top : yield* realOf(path)
  if (top === undefined || real === undefined) return yield* missing
  const { folder, handle } = yield* openSource({ real, roots: [top], what })
  return folder ? handle : yield* missing
})

/** Makes a folder to mount at, never through a link; an entry of another type is removed. */
export const mountPoint = Effect.fnUntraced(function* (
  root: string,
  target: { readonly parts: ReadonlyArray<string>; readonly target: string },
  folder = true
) {
  const place = yield* makeTarget(root, target)
  const stats = yield* lstatSync(place)
  if (stats !== undefined && (folder ? stats.isDirectory() : stats.isFile())) return place
  if (stats !== undefined) yield* removeTree(place)
  yield* makeLike(
    place,
    folder ? makeFolder(place) : ioSync(place, () => fs.writeFileSync(place, "", { flag: "wx" }))
  )
  return place
})

export interface MountTreeOptions {
  readonly at: LayerFolders
  /** The owner of the instance's files, unless each keeps its owner. */
  readonly owner: RunUser | undefined
  readonly mapped: boolean
}

/** Mounts the layers of a tree, whose sources are all opened before the first mount. */
export const mountTree = Effect.fnUntraced(function* (
  files: string,
  tree: string,
  record: TreeRecord,
  { at, mapped, owner }: MountTreeOptions,
  mounter: Mounter
) {
  const open = Effect.fnUntraced(function* (layer: TreeLayer) {
    const handle = yield* openLayer(layer, tree, record, at)
    return { handle, shown: mapped ? shownTo(owner, handle) : undefined }
  })
  const openOverlay = Effect.fnUntraced(function* (
    target: ReadonlyArray<string>,
    own: string,
    lower: ReadonlyArray<TreeLayer>
  ) {
    const layers: OverlayLayers = {
      lower: yield* Effect.forEach(lower, open),
      upper: yield* openToMount(join(own, "upper")),
      work: yield* openToMount(join(own, "work"))
    }
    return { target, layers }
  })
  const base = yield* openOverlay([], tree, [{ of: "base", parts: [] }])
  const nested = yield* Effect.forEach(record.nested, ({ lower, target }, index) =>
    openOverlay(target, overOf(tree, index), lower)
  )
  yield* makeFolder(files)
  const name = mountName(record, owner)
  for (const { layers, target } of [base, ...nested]) {
    const place =
      target.length === 0 ? files : yield* mountPoint(files, { parts: target, target: target.join("/") })
    yield* mounter.overlay(place, layers, name)
  }
}, Effect.scoped)

const partsBelow = (root: string, path: string) =>
  relative(root, path)
    .split(sep)
    .filter((part) => part !== "")

export interface BuildOptions extends MountTreeOptions {
  readonly tree: string
  readonly plan: FilePlan
  readonly generation: string
  /** Whether a volume is copied, because it could change while it is a layer. */
  readonly copyFirst: (source: Source) => boolean
}

/** Makes the layers of an instance and their record in `tree`. Returns the volumes that are single files, too. */
export const buildTree = Effect.fnUntraced(function* (options: BuildOptions) {
  const { at, copyFirst, generation, mapped, owner, plan, tree } = options
  const base = join(at.generations, generation)
  yield* makeUpper(tree, base, owner)
  /** A layer is shown with one owner; with several, a part would have the wrong one. */
  const isLayer = Effect.fnUntraced(function* (source: Source) {
    if (copyFirst(source)) return false
    if (owner === undefined) return true
    const top = yield* ownerOf(source.real)
    const fits = mapped || (top.uid === owner.uid && top.gid === owner.gid)
    return fits && (yield* isUniform(source.real, top))
  })
  const volumes = yield* Effect.forEach(
    plan.cow,
    Effect.fnUntraced(function* (cow) {
      const source = yield* templateSource(cow.volume, at.sources)
      const own = `lower.${cow.index}`
      const layer: TreeLayer = { of: "own", parts: [own] }
      if (source === undefined) {
        yield* makeFolderLike(join(tree, own), base, owner)
        return { ...cow, folder: true, layer, path: join(tree, own) }
      }
      const opened = yield* openSource(source)
      const top = source.roots[0] ?? ""
      if (!opened.folder || (yield* isLayer(source))) {
        const layer: TreeLayer = { of: "volumes", parts: partsBelow(top, source.real) }
        return { ...cow, folder: opened.folder, layer, path: source.real }
      }
      yield* copyOpened(source.what, opened, join(tree, own))
      return { ...cow, folder: true, layer, path: join(tree, own) }
    }, Effect.scoped)
  )
  const folders = volumes.filter((volume) => volume.folder)
  const places = new Map(folders.map(({ parts }) => [parts.join("/"), parts]))
  const nested: Array<Nested> = []
  for (const target of [...places.values()].sort((a, b) => a.length - b.length)) {
    const lower: Array<TreeLayer> = []
    let hidden = false
    const look = Effect.fnUntraced(function* (root: string, layer: TreeLayer, rest: ReadonlyArray<string>) {
      if (hidden) return
      const kind = yield* kindAt(root, rest)
      if (kind === "folder") lower.push({ of: layer.of, parts: [...layer.parts, ...rest] })
      hidden = kind === "other"
    })
    // The later of two volumes is above the earlier, as if they were copied in order.
    for (const { layer, parts, path } of folders.toReversed()) {
      if (isAbove(parts, target)) yield* look(path, layer, target.slice(parts.length))
    }
    const covered = hidden
    yield* look(base, { of: "base", parts: [] }, target)
    const [first, ...others] = lower
    if (first === undefined) continue
    const { path } = folderOf(first, tree, { base: generation }, at)
    yield* makeUpper(overOf(tree, nested.length), path, owner)
    nested.push({ target, lower: [first, ...others], covered })
  }
  const record: TreeRecord = { format: 1, id: randomUUID(), base: generation, nested }
  return { record, files: volumes.filter((volume) => !volume.folder) }
})

/** Returns the record with another base; folders of the base at a volume's target become layers there. */
export const withBase = Effect.fnUntraced(function* (record: TreeRecord, base: BaseFolder) {
  const nested: Array<Nested> = []
  for (const one of record.nested) {
    const [first, ...others] = one.lower
    const volumes = others.filter((layer) => layer.of !== "base")
    const there = !one.covered && (yield* kindAt(base.folder, one.target)) === "folder"
    const below: ReadonlyArray<TreeLayer> = there ? [{ of: "base", parts: one.target }] : []
    nested.push({ ...one, lower: [first, ...volumes, ...below] })
  }
  return { ...record, id: randomUUID(), base: base.generation, nested } satisfies TreeRecord
})
