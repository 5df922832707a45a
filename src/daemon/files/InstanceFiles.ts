import * as fs from "node:fs/promises"
import { dirname, isAbsolute, join, sep } from "node:path"
import { Effect, Result } from "effect"
import type { Copy, Mount, Volume } from "../../domain/Blueprint.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { copyTree } from "./copyTree.ts"
import { IoError, io, lstat, makeFolder, orMissing, removeTree, rename } from "./fsio.ts"
import { partsOf } from "./safePath.ts"

/** Where instances take their files from. */
export interface FileSources {
  /** Data folder: `copy` entries are relative to it. */
  readonly data_dir: string
  readonly volumes_dir: string
  /** Host folders that `mounts` may use, links resolved. */
  readonly allowed_mounts: ReadonlyArray<string>
}

const refuse = (message: string) => new IoError({ code: "REFUSED", message })

/** Path of a target as blueprints write it: absolute means from the instance folder, as containers see it. */
const CONTAINER_HOME = "/home/container"
const targetParts = (target: string) => {
  const inside =
    target === CONTAINER_HOME || target.startsWith(`${CONTAINER_HOME}/`)
      ? target.slice(CONTAINER_HOME.length)
      : target
  return Result.mapError(partsOf(inside.replace(/^\/+/, "")), (error) =>
    refuse(`target ${target}: ${error.reason}`)
  )
}

/** The real path of a source, which has to lie below `root` also when links are followed. */
const sourceBelow = Effect.fnUntraced(function* (root: string, source: string, what: string) {
  const parts = yield* Effect.fromResult(
    Result.mapError(partsOf(source), (error) => refuse(`${what} ${source}: ${error.reason}`))
  )
  const real = yield* io(`${what} ${source}`, () => fs.realpath(join(root, ...parts))).pipe(
    orMissing(undefined)
  )
  if (real === undefined) return { parts, real }
  const realRoot = yield* io(root, () => fs.realpath(root))
  if (!real.startsWith(realRoot + sep))
    return yield* refuse(`${what} ${source}: it leaves its folder through a link`)
  return { parts, real }
})

/** Makes the folders of a target, never through a link; answers its path. */
const placeFor = Effect.fnUntraced(function* (root: string, target: string) {
  const parts = yield* Effect.fromResult(targetParts(target))
  let path = root
  for (const part of parts.slice(0, -1)) {
    path = join(path, part)
    const stats = yield* lstat(path)
    if (stats === undefined) yield* makeFolder(path)
    else if (!stats.isDirectory())
      return yield* refuse(`target ${target}: ${part} is not a folder of the instance`)
  }
  return join(root, ...parts)
})

const link = Effect.fnUntraced(function* (real: string, place: string) {
  yield* removeTree(place)
  yield* io(`create link ${place}`, () => fs.symlink(real, place))
})

/** A missing source is made, empty, but for `ro`: nothing could ever fill it. */
const addVolume = Effect.fnUntraced(function* (root: string, volume: Volume, sources: FileSources) {
  const what = `volume ${volume.name}`
  const found = yield* sourceBelow(sources.volumes_dir, volume.source, what)
  const place = yield* placeFor(root, volume.target)
  let real = found.real
  if (real === undefined) {
    if (volume.mode === "ro")
      return yield* refuse(`${what}: there is no ${volume.source} in the volumes folder`)
    real = join(sources.volumes_dir, ...found.parts)
    yield* makeFolder(real)
  }
  // Without privileges a link is the only way to share; `ro` is a promise that nothing enforces here.
  yield* volume.mode === "cow" ? copyTree(real, place) : link(real, place)
})

const addMount = Effect.fnUntraced(function* (root: string, mount: Mount, sources: FileSources) {
  if (!isAbsolute(mount.source)) return yield* refuse(`mount ${mount.source}: it is not absolute`)
  const real = yield* io(`mount ${mount.source}`, () => fs.realpath(mount.source))
  const allowed = yield* Effect.forEach(sources.allowed_mounts, (path) =>
    io(`allowed mount ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
  )
  if (!allowed.some((path) => path !== undefined && (real === path || real.startsWith(path + sep)))) {
    return yield* refuse(`mount ${mount.source} is not below the allowed mounts of the node`)
  }
  yield* link(real, yield* placeFor(root, mount.target))
})

/** Top-level files of the data folder are the service's own (keys, database) and never copied. */
const addCopy = Effect.fnUntraced(function* (root: string, copy: Copy, sources: FileSources) {
  const { parts, real } = yield* sourceBelow(sources.data_dir, copy.source, "copy")
  if (real === undefined) return yield* refuse(`copy ${copy.source}: no such file or folder`)
  if (parts.length === 1 && !(yield* io(real, () => fs.stat(real))).isDirectory()) {
    return yield* refuse(`copy ${copy.source}: put it into a folder of the data folder`)
  }
  yield* copyTree(real, yield* placeFor(root, copy.target))
})

const addShared = Effect.fnUntraced(function* (root: string, spec: ServerSpec, sources: FileSources) {
  for (const volume of spec.definition.volumes) {
    if (volume.mode !== "cow") yield* addVolume(root, volume, sources)
  }
  for (const mount of spec.definition.mounts) yield* addMount(root, mount, sources)
})

/** The folder of the server that its process sees. */
export const instanceFolder = (folder: string): string => join(folder, "files")

/** Makes the instance folder anew, aside, from base, volumes and copies; then it takes the old one's place. */
export const makeInstance = Effect.fnUntraced(function* (
  folder: string,
  base: string,
  spec: ServerSpec,
  sources: FileSources
) {
  const files = instanceFolder(folder)
  const aside = join(folder, "files.building")
  const old = join(folder, "files.old")
  yield* Effect.gen(function* () {
    yield* removeTree(aside)
    yield* makeFolder(dirname(aside))
    yield* copyTree(base, aside)
    for (const volume of spec.definition.volumes) {
      if (volume.mode === "cow") yield* addVolume(aside, volume, sources)
    }
    yield* addShared(aside, spec, sources)
    for (const copy of spec.definition.copy) yield* addCopy(aside, copy, sources)
    yield* removeTree(old)
    yield* rename(files, old).pipe(orMissing(undefined))
    yield* rename(aside, files)
  }).pipe(Effect.onError(() => Effect.ignore(removeTree(aside))))
  yield* removeTree(old)
})

/** Puts the files of the base over those of the instance; what only the instance has is its user's and stays. */
export const overlayInstance = Effect.fnUntraced(function* (
  folder: string,
  base: string,
  spec: ServerSpec,
  sources: FileSources
) {
  const files = instanceFolder(folder)
  yield* copyTree(base, files)
  yield* addShared(files, spec, sources)
})
