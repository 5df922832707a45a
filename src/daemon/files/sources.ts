/** Where instances take their files from, and how these are found without leaving their folders. */
import * as fs from "node:fs/promises"
import { isAbsolute, join, relative, sep } from "node:path"
import { Effect, Result } from "effect"
import type { Copy, Mount, Volume } from "../../domain/Blueprint.ts"
import { FOLDERS } from "../dataFolder.ts"
import type { Arrivals } from "./arrival.ts"
import { refuse, type Shared, type Target } from "./filePlan.ts"
import { io, lstat, makeFolder, orMissing } from "./fsio.ts"
import { openToMount } from "./mounts.ts"
import { partsOf } from "./safePath.ts"

export interface FileSources {
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
  readonly what: string
}

const isBelow = (path: string, root: string) =>
  path === root || path.startsWith(root === sep ? sep : root + sep)

/** The source below `root`, also when links are followed; `real` is undefined where there is nothing. */
const sourceBelow = Effect.fnUntraced(function* (root: string, source: string, what: string) {
  const parts = yield* Effect.fromResult(
    Result.mapError(partsOf(source), (error) => refuse(`${what} ${source}: ${error.reason}`))
  )
  const real = yield* io(`${what} ${source}`, () => fs.realpath(join(root, ...parts))).pipe(
    orMissing(undefined)
  )
  const top = yield* io(root, () => fs.realpath(root))
  if (real !== undefined && !real.startsWith(top + sep)) {
    return yield* refuse(`${what} ${source}: it leaves its folder through a link`)
  }
  return { parts, real, top }
})

/** Source of a volume. A missing one is made, empty, but for `ro`: nothing could ever fill it. */
export const volumeSource = Effect.fnUntraced(function* (volume: Volume, { volumes_dir }: FileSources) {
  const what = `volume ${volume.name}`
  const { parts, real, top } = yield* sourceBelow(volumes_dir, volume.source, what)
  const source = (path: string): Source => ({ real: path, roots: [top], what: `${what} ${volume.source}` })
  if (real !== undefined) return source(real)
  if (volume.mode === "ro") {
    return yield* refuse(`${what}: there is no ${volume.source} in the volumes folder`)
  }
  const made = join(top, ...parts)
  yield* makeFolder(made)
  return source(yield* io(made, () => fs.realpath(made)))
})

/** Source of a mount: below the allowed ones, links resolved on both sides. */
export const mountSource = Effect.fnUntraced(function* (mount: Mount, { allowed_mounts }: FileSources) {
  const what = `mount ${mount.source}`
  if (!isAbsolute(mount.source)) return yield* refuse(`${what}: it is not absolute`)
  if (mount.source.includes("\0")) return yield* refuse(`${what}: it contains a NUL character`)
  const real = yield* io(what, () => fs.realpath(mount.source))
  const found = yield* Effect.forEach(allowed_mounts, (path) =>
    io(`allowed mount ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
  )
  const roots = found.filter((path) => path !== undefined)
  if (!roots.some((root) => isBelow(real, root))) {
    return yield* refuse(`${what} is not below the allowed mounts of the node`)
  }
  const source: Source = { real, roots, what }
  return source
})

export const sharedSource = ({ of }: Shared, sources: FileSources) =>
  "volume" in of ? volumeSource(of.volume, sources) : mountSource(of.mount, sources)

/** Source of a copy. Top-level files of the data folder are the service's own (keys, database) and never copied. */
export const copySource = Effect.fnUntraced(function* (copy: Copy, { data_dir }: FileSources) {
  const { parts, real, top } = yield* sourceBelow(data_dir, copy.source, "copy")
  if (real === undefined) return yield* refuse(`copy ${copy.source}: no such file or folder`)
  // By where it leads: a link in the data folder gets no further than its name.
  const [folder = ""] = relative(top, real).split(sep)
  if (folder === FOLDERS.servers || folder === FOLDERS.base || folder.startsWith(".")) {
    return yield* refuse(`copy ${copy.source}: ${folder} of the data folder cannot be copied from`)
  }
  const stats = yield* io(real, () => fs.stat(real))
  if (parts.length === 1 && !stats.isDirectory()) {
    return yield* refuse(`copy ${copy.source}: put it into a folder of the data folder`)
  }
  const source: Source = { real, roots: [top], what: `copy ${copy.source}` }
  return source
})

/**
 * Opens a source to name it for a mount, for the scope. Looked at once more when it is open: a link may have taken
 * the place of a folder on the way to it.
 */
export const openSource = Effect.fnUntraced(function* ({ real, roots, what }: Source) {
  const handle = yield* openToMount(real)
  const stats = yield* io(what, () => handle.stat())
  if (!stats.isDirectory() && !stats.isFile()) return yield* refuse(`${what}: neither a file nor a folder`)
  const path = yield* io(what, () => fs.readlink(`/proc/self/fd/${handle.fd}`))
  if (!roots.some((root) => isBelow(path, root))) {
    return yield* refuse(`${what}: it leaves its folder through a link`)
  }
  return { handle, folder: stats.isDirectory() }
})

/** Makes the folders of a target, never through a link; answers its path. */
export const placeFor = Effect.fnUntraced(function* (root: string, { parts, target }: Target) {
  let path = root
  for (const part of parts.slice(0, -1)) {
    path = join(path, part)
    const stats = yield* lstat(path)
    if (stats === undefined) yield* makeFolder(path)
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
