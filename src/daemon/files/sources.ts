/** The sources of an instance's files, resolved without leaving their folders. */

import { readlinkSync } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path"
import { Effect, Result } from "effect"
import type { Copy, Mount, Volume } from "../../contract/domain/Blueprint.ts"
import {
  type FileDefinition,
  type FilePlan,
  planFiles,
  type Shared,
  type Target
} from "../../contract/domain/filePlan.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { IoError, io, ioSync, lstat, makeFolder, orMissing } from "../disk/fsio.ts"
import { isIn } from "../disk/mountTable.ts"
import { partsOf } from "../disk/safePath.ts"
import { FOLDERS } from "../host/dataFolder.ts"
import type { Arrivals } from "./importFiles.ts"
import { openToMount } from "./mounts.ts"
import { makeLike } from "./owners.ts"

/** The folder of backups below the data folder. */
export const BACKUPS = "backups"

export const refuse = (message: string) => new IoError({ code: "REFUSED", message })

export const filePlan = (definition: FileDefinition): Result.Result<FilePlan, IoError> => {
  const { conflicts, plan } = planFiles(definition)
  const conflict = conflicts.find(({ impossible }) => impossible)
  return conflict === undefined ? Result.succeed(plan) : Result.fail(refuse(conflict.reason))
}

export interface FileSources {
  readonly node_id: NodeId
  /** The data folder: `copy` entries are relative to it. */
  readonly dataDir: string
  readonly volumesDir: string
  readonly allowedMounts: ReadonlyArray<string>
  readonly arrivals?: Arrivals
}

/** A source file or folder, and the folders that it must be in; links resolved. */
export interface Source {
  readonly real: string
  readonly roots: ReadonlyArray<string>
  /** Its name in messages: the path in the data folder, or else on the host. */
  readonly what: string
}

/** A refusal because of the state of the node, not of the blueprint. */
const missingSource = (message: string, next: string) => new IoError({ code: "REFUSED", message, next })

/** Returns the source below `root`, links followed, without `real` if it is missing. `key` is from the blueprint. */
const sourceBelow = Effect.fnUntraced(function* (root: string, source: string, key: string, what: string) {
  const parts = yield* Effect.fromResult(
    Result.mapError(partsOf(source), (error) => refuse(`${key}: ${source}: ${error.reason}`))
  )
  const real = yield* io(`${key}: ${what}`, () => fs.realpath(join(root, ...parts))).pipe(
    orMissing(undefined)
  )
  const top = yield* io(`${key}: ${what}`, () => fs.realpath(root))
  if (real !== undefined && !real.startsWith(top + sep)) {
    return yield* missingSource(
      `${key}: ${what} leaves its folder through a link`,
      "put what it leads to there"
    )
  }
  return { parts, real, top }
})

const volumeBelow = Effect.fnUntraced(function* ({ source }: Volume, { volumesDir }: FileSources) {
  const what = `${FOLDERS.volumes}/${source}`
  const { parts, real, top } = yield* sourceBelow(volumesDir, source, "state.volumes", what)
  const found: Source | undefined = real === undefined ? undefined : { real, roots: [top], what }
  return { found, made: join(top, ...parts), top, what }
})

/** Returns the source of a template volume. Without one, the instance starts empty. */
export const templateSource = (volume: Volume, sources: FileSources) =>
  Effect.map(volumeBelow(volume, sources), ({ found }) => found)

/** Returns the source of a shared volume. A missing one is made, unless it is `ro` and could never be filled. */
const volumeSource = Effect.fnUntraced(function* (volume: Volume, sources: FileSources) {
  const { found, made, top, what } = yield* volumeBelow(volume, sources)
  if (found !== undefined) return found
  if (volume.mode === "ro")
    return yield* missingSource(`state.volumes: there is no ${what}`, `put it at ${made}`)
  yield* io(`create folder ${what}`, () => fs.mkdir(made, { recursive: true }))
  const real = yield* io(`state.volumes: ${what}`, () => fs.realpath(made))
  return { real, roots: [top], what } satisfies Source
})

/** Returns the template volumes without a source, with which a server starts with an empty folder. */
export const missingVolumes = (volumes: ReadonlyArray<Volume>, sources: FileSources) =>
  Effect.filter(volumes, (volume) =>
    volume.mode === "ro"
      ? Effect.succeed(false)
      : Effect.map(volumeBelow(volume, sources), ({ found }) => found === undefined)
  )

/** Resolves the links of an absolute path as far as it exists. */
const resolveLinks = (
  path: string
): Effect.Effect<{ readonly real: string; readonly there: boolean }, IoError> =>
  Effect.gen(function* () {
    const real = yield* io(`stat ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
    if (real !== undefined) return { real, there: true }
    const above = yield* resolveLinks(dirname(path))
    return { real: join(above.real, basename(path)), there: false }
  })

/** Returns a source on the host: in an allowed folder, with links of both resolved. */
const hostSource = Effect.fnUntraced(function* (what: string, key: string, { allowedMounts }: FileSources) {
  if (!isAbsolute(what)) return yield* refuse(`${key}: ${what}: it is not absolute`)
  if (what.includes("\0")) return yield* refuse(`${key}: ${what}: it contains a NUL character`)
  const { real, there } = yield* resolveLinks(what)
  const roots = yield* Effect.forEach(allowedMounts, (path) =>
    Effect.map(resolveLinks(path), (root) => root.real)
  )
  // Checked first: a refusal must not reveal whether other paths exist.
  if (!roots.some((root) => isIn(real, root))) {
    return yield* missingSource(
      `${key}: ${what} is not below the allowed mounts of the node`,
      "allow it there with MUSTER_ALLOWED_MOUNTS"
    )
  }
  if (!there) return yield* missingSource(`${key}: there is no ${what}`, "put it there")
  return { real, roots, what } satisfies Source
})

export const mountSource = (mount: Pick<Mount, "source">, sources: FileSources) =>
  hostSource(mount.source, "state.mounts", sources)

export const sharedSource = ({ of }: Shared, sources: FileSources) =>
  "volume" in of ? volumeSource(of.volume, sources) : mountSource(of.mount, sources)

const COPY = "state.copy"

/** Refuses files of the data folder that are never copied: keys, the database, and files of servers. */
const checkCopied = Effect.fnUntraced(function* (real: string, top: string, what: string) {
  const parts = relative(top, real).split(sep)
  const [folder = ""] = parts
  const closed: ReadonlyArray<string> = [FOLDERS.servers, FOLDERS.base, FOLDERS.lost, BACKUPS]
  if (closed.includes(folder) || folder.startsWith(".")) {
    return yield* refuse(`${COPY}: ${what}: ${folder} of the data folder cannot be copied from`)
  }
  const stats = yield* io(`${COPY}: ${what}`, () => fs.stat(real))
  if (parts.length === 1 && !stats.isDirectory()) {
    return yield* refuse(`${COPY}: ${what}: files are copied from folders of the data folder only`)
  }
})

const copySourceOfHost = Effect.fnUntraced(function* (what: string, sources: FileSources) {
  const source = yield* hostSource(what, COPY, sources)
  const top = yield* io(`${COPY}: ${what}`, () => fs.realpath(sources.dataDir))
  if (isIn(top, source.real)) {
    return yield* refuse(`${COPY}: ${what}: the data folder of the node is in it, which cannot be copied`)
  }
  if (isIn(source.real, top)) yield* checkCopied(source.real, top, what)
  return source
})

/** Returns the source of a copy. Checks the resolved path: a link in the data folder must not lead elsewhere. */
export const copySource = Effect.fnUntraced(function* (copy: Copy, sources: FileSources) {
  const what = copy.source
  if (isAbsolute(what)) return yield* copySourceOfHost(what, sources)
  const { parts, real, top } = yield* sourceBelow(sources.dataDir, what, COPY, what)
  if (real === undefined) {
    return yield* missingSource(`${COPY}: there is no ${what}`, `put it at ${join(top, ...parts)}`)
  }
  yield* checkCopied(real, top, what)
  return { real, roots: [top], what } satisfies Source
})

/** Returns the entries of a source folder. @error IoError it has more than `most`; `instead` says what helps */
export const entriesOf = Effect.fnUntraced(function* (
  real: string,
  what: string,
  most: number,
  key: string,
  instead: string
) {
  const entries = yield* io(what, () => fs.readdir(real, { withFileTypes: true }))
  if (entries.length <= most) return entries
  return yield* refuse(`${key}: ${what} has more than ${most} entries: ${instead}`)
})

/** Opens the source of a mount for the scope, and checks it again: a link may have replaced a parent folder. */
export const openSource = Effect.fnUntraced(function* ({ real, roots, what }: Source) {
  const handle = yield* openToMount(real)
  const { stats } = handle
  if (!stats.isDirectory() && !stats.isFile())
    return yield* missingSource(`${what}: neither a file nor a folder`, "replace it")
  const path = yield* ioSync(what, () => readlinkSync(`/proc/self/fd/${handle.fd}`))
  if (!roots.some((root) => isIn(path, root))) {
    return yield* missingSource(`${what} leaves its folder through a link`, "put what it leads to there")
  }
  return { handle, folder: stats.isDirectory() }
})

/** Makes the parent folders of a target, never through a link; returns its path. */
export const makeTarget = Effect.fnUntraced(function* (root: string, { parts, target }: Target) {
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

/** Returns the type of a path in a layer, without following links: `other` hides lower layers. */
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
