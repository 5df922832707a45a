/** Where instances take their files from, and how these are found without leaving their folders. */
import * as fs from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path"
import { Effect, Result } from "effect"
import type { Copy, Mount, Volume } from "../../domain/Blueprint.ts"
import { IoError, io, lstat, makeFolder, orMissing } from "../disk/fsio.ts"
import { partsOf } from "../disk/safePath.ts"
import { FOLDERS } from "../host/dataFolder.ts"
import { refuse, type Shared, type Target } from "./filePlan.ts"
import type { Arrivals } from "./importFiles.ts"
import { openToMount } from "./mounts.ts"
import { makeLike } from "./owners.ts"

export interface FileSources {
  /** The node whose they are, for those who read of them. */
  readonly node_id: string
  /** Data folder: `copy` entries are relative to it. */
  readonly data_dir: string
  readonly volumes_dir: string
  /** Host folders that `mounts` may use. */
  readonly allowed_mounts: ReadonlyArray<string>
  /** Servers that come from other nodes. */
  readonly arrivals?: Arrivals
}

/** A file or folder to take, and the folders that it has to lie in; links resolved. */
export interface Source {
  readonly real: string
  readonly roots: ReadonlyArray<string>
  /** As people find it: its path in the data folder, or on the machine where it is not there. */
  readonly what: string
}

const isBelow = (path: string, root: string) =>
  path === root || path.startsWith(root === sep ? sep : root + sep)

/** Refused for what there is on the node, not for what the blueprint says. */
const lacking = (message: string, next: string) => new IoError({ code: "REFUSED", message, next })

/**
 * The source below `root`, also when links are followed; `real` is undefined where there is nothing. `key`: of the
 * blueprint; `what`: the source as people find it.
 */
const sourceBelow = Effect.fnUntraced(function* (root: string, source: string, key: string, what: string) {
  const parts = yield* Effect.fromResult(
    Result.mapError(partsOf(source), (error) => refuse(`${key}: ${source}: ${error.reason}`))
  )
  const real = yield* io(`${key}: ${what}`, () => fs.realpath(join(root, ...parts))).pipe(
    orMissing(undefined)
  )
  const top = yield* io(`${key}: ${what}`, () => fs.realpath(root))
  if (real !== undefined && !real.startsWith(top + sep)) {
    return yield* lacking(`${key}: ${what} leaves its folder through a link`, "put what it leads to there")
  }
  return { parts, real, top }
})

const volumeBelow = Effect.fnUntraced(function* ({ source }: Volume, { volumes_dir }: FileSources) {
  const what = `${FOLDERS.volumes}/${source}`
  const { parts, real, top } = yield* sourceBelow(volumes_dir, source, "state.volumes", what)
  const found: Source | undefined = real === undefined ? undefined : { real, roots: [top], what }
  return { found, made: join(top, ...parts), top, what }
})

/** Source of a volume that is a template; undefined where there is none: what is made of it begins empty. */
export const templateSource = (volume: Volume, sources: FileSources) =>
  Effect.map(volumeBelow(volume, sources), ({ found }) => found)

/** Source of a volume that is shared. A missing one is made, empty, but for `ro`: nothing could ever fill it. */
export const volumeSource = Effect.fnUntraced(function* (volume: Volume, sources: FileSources) {
  const { found, made, top, what } = yield* volumeBelow(volume, sources)
  if (found !== undefined) return found
  if (volume.mode === "ro") return yield* lacking(`state.volumes: there is no ${what}`, `put it at ${made}`)
  yield* io(`create folder ${what}`, () => fs.mkdir(made, { recursive: true }))
  const real = yield* io(`state.volumes: ${what}`, () => fs.realpath(made))
  const source: Source = { real, roots: [top], what }
  return source
})

/** Volumes of which there is no source, although a server is to be made of them: it begins with an empty folder. */
export const missingVolumes = (volumes: ReadonlyArray<Volume>, sources: FileSources) =>
  Effect.filter(volumes, (volume) =>
    volume.mode === "ro"
      ? Effect.succeed(false)
      : Effect.map(volumeBelow(volume, sources), ({ found }) => found === undefined)
  )

/** Where an absolute path leads, its links resolved as far as there is something. */
const leadsTo = (path: string): Effect.Effect<{ readonly real: string; readonly there: boolean }, IoError> =>
  Effect.gen(function* () {
    const real = yield* io(`look at ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
    if (real !== undefined) return { real, there: true }
    const above = yield* leadsTo(dirname(path))
    return { real: join(above.real, basename(path)), there: false }
  })

/** Source of a mount: below the allowed ones, links resolved on both sides. */
export const mountSource = Effect.fnUntraced(function* (mount: Mount, { allowed_mounts }: FileSources) {
  const what = mount.source
  if (!isAbsolute(what)) return yield* refuse(`state.mounts: ${what}: it is not absolute`)
  if (what.includes("\0")) return yield* refuse(`state.mounts: ${what}: it contains a NUL character`)
  const { real, there } = yield* leadsTo(what)
  const roots = yield* Effect.forEach(allowed_mounts, (path) =>
    Effect.map(leadsTo(path), (root) => root.real)
  )
  // First: what is where nothing is allowed is nobody's concern.
  if (!roots.some((root) => isBelow(real, root))) {
    return yield* lacking(
      `state.mounts: ${what} is not below the allowed mounts of the node`,
      "allow it there with MUSTER_ALLOWED_MOUNTS"
    )
  }
  if (!there) return yield* lacking(`state.mounts: there is no ${what}`, "put it there")
  const source: Source = { real, roots, what }
  return source
})

export const sharedSource = ({ of }: Shared, sources: FileSources) =>
  "volume" in of ? volumeSource(of.volume, sources) : mountSource(of.mount, sources)

/** Source of a copy. Top-level files of the data folder are the service's own (keys, database) and never copied. */
export const copySource = Effect.fnUntraced(function* (copy: Copy, { data_dir }: FileSources) {
  const what = copy.source
  const { parts, real, top } = yield* sourceBelow(data_dir, what, "state.copy", what)
  if (real === undefined) {
    return yield* lacking(`state.copy: there is no ${what}`, `put it at ${join(top, ...parts)}`)
  }
  // By where it leads: a link in the data folder gets no further than its name.
  const [folder = ""] = relative(top, real).split(sep)
  const closed: ReadonlyArray<string> = [FOLDERS.servers, FOLDERS.base, FOLDERS.lost]
  if (closed.includes(folder) || folder.startsWith(".")) {
    return yield* refuse(`state.copy: ${what}: ${folder} of the data folder cannot be copied from`)
  }
  const stats = yield* io(`state.copy: ${what}`, () => fs.stat(real))
  if (parts.length === 1 && !stats.isDirectory()) {
    return yield* refuse(`state.copy: ${what}: files are copied from folders of the data folder only`)
  }
  const source: Source = { real, roots: [top], what }
  return source
})

/**
 * Opens a source to name it for a mount, for the scope. Looked at once more when it is open: a link may have taken
 * the place of a folder on the way to it.
 */
export const openSource = Effect.fnUntraced(function* ({ real, roots, what }: Source) {
  const handle = yield* openToMount(real)
  const stats = yield* io(what, () => handle.stat())
  if (!stats.isDirectory() && !stats.isFile())
    return yield* lacking(`${what}: neither a file nor a folder`, "replace it")
  const path = yield* io(what, () => fs.readlink(`/proc/self/fd/${handle.fd}`))
  if (!roots.some((root) => isBelow(path, root))) {
    return yield* lacking(`${what} leaves its folder through a link`, "put what it leads to there")
  }
  return { handle, folder: stats.isDirectory() }
})

/** Makes the folders of a target, never through a link; answers its path. */
export const placeFor = Effect.fnUntraced(function* (root: string, { parts, target }: Target) {
  let path = root
  for (const part of parts.slice(0, -1)) {
    path = join(path, part)
    const stats = yield* lstat(path)
    if (stats === undefined) yield* makeLike(path, makeFolder(path))
    else if (!stats.isDirectory()) {
      return yield* refuse(`target ${target}: ${part} is not a folder of the instance`)
    }
  }
  return join(root, ...parts)
})

/** What is at a path of a layer, its links not followed: `other` hides what lower layers have there. */
export const kindAt = Effect.fnUntraced(function* (root: string, parts: ReadonlyArray<string>) {
  let path = root
  for (const part of ["", ...parts]) {
    path = join(path, part)
    const stats = yield* lstat(path)
    if (stats === undefined) return "none"
    if (!stats.isDirectory()) return "other"
  }
  return "folder"
})
