/** Entries of folders as callers see them, and the strong tags of files (spec 10.2, 10.3). */
import type { BigIntStats, Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Option, Scope, Semaphore } from "effect"
import {
  childPath,
  type FileEntry,
  type FileType,
  modeText,
  nameOf,
  shownName,
  timeOfFile
} from "../../contract/domain/Files.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { TaggedEntry } from "../../contract/nodeApi/NodeFiles.ts"
import { ENTRIES_AT_ONCE, type ListedEntry } from "../../contract/nodeApi/sessionFrames.ts"
import { forEachName, type IoError, nextEntries, openEntries, toIoError } from "../disk/fsio.ts"
import { FOLDER, io, isTemporary, lstatIn, open, PERMISSIONS, within } from "../disk/safePath.ts"
import { treeSize } from "../files/copyTree.ts"
import { type AccessError, noSuchPath } from "./refused.ts"
import { bytesOf, type Place, type Site } from "./Site.ts"
import { walkVisible } from "./visible.ts"

export const typeOf = (stats: Stats | BigIntStats): FileType => {
  if (stats.isFile()) return "file"
  if (stats.isDirectory()) return "folder"
  return stats.isSymbolicLink() ? "link" : "other"
}

/** Returns the strong tag of a file: each write, replacement and change of its attributes makes another one. */
export const etagOf = ({ ctimeNs, dev, ino, mtimeNs, size }: BigIntStats): string =>
  `"${[dev, ino, size, mtimeNs, ctimeNs].map((part) => part.toString(36)).join("-")}"`

const managedOf = ({ definition }: ServerSpec, path: string): ReadonlyArray<string> =>
  Object.entries(definition.configs).flatMap(([file, { find }]) =>
    file.replace(/^(?:\.?\/)+/, "") === path.slice(1) ? Object.keys(find) : []
  )

const entryOf = (
  { site, path, name }: { readonly site: Site; readonly path: string; readonly name: string },
  stats: Stats | BigIntStats,
  layer: FileEntry["layer"],
  target: string | undefined
): FileEntry => {
  const managed = managedOf(site.spec, path)
  return {
    name,
    type: typeOf(stats),
    size: stats.isDirectory() ? 0 : Math.min(Number.MAX_SAFE_INTEGER, Number(stats.size)),
    modified_at: timeOfFile(Number(stats.mtimeMs)),
    mode: modeText(Number(stats.mode) & PERMISSIONS),
    ...(target === undefined ? {} : { target }),
    layer,
    ...(managed.length === 0 ? {} : { managed }),
    writable: path !== "/" && site.whyNotWritable(path) === undefined
  }
}

const readLink = (path: string, folder: fs.FileHandle, name: Buffer) =>
  Effect.map(
    io(path, () => fs.readlink(within(folder, name), { encoding: "buffer" })),
    shownName
  )

/** Returns the stats of a place with its layer, as a server sees them. */
const statsOf = Effect.fnUntraced(function* (site: Site, place: Place) {
  const name = place.parts.at(-1)
  if (name === undefined) {
    const { handle } = yield* site.root(place)
    const stats = yield* io(place.path, () => handle.stat({ bigint: true }))
    return { stats, layer: place.shared?.layer ?? ("server" as const), target: undefined }
  }
  const { folder } = yield* site.parent(place)
  const found = yield* io(place.path, () => fs.lstat(within(folder, name), { bigint: true })).pipe(
    Effect.catchIf(
      ({ code }) => code === "ENOENT",
      () => noSuchPath(place.path)
    )
  )
  const layerOf = yield* site.layersIn({ ...place, parts: place.parts.slice(0, -1) })
  const target = found.isSymbolicLink() ? yield* readLink(place.path, folder, name) : undefined
  return { stats: found, layer: yield* layerOf(name, found), target }
})

export const statEntry = Effect.fnUntraced(function* (site: Site, given: string) {
  const place = yield* site.place(given)
  const { layer, stats, target } = yield* statsOf(site, place)
  const name = nameOf(place.path) || "/"
  return {
    entry: entryOf({ site, path: place.path, name }, stats, layer, target),
    etag: etagOf(stats)
  } satisfies TaggedEntry
})

/** Names that are in memory beside those of the page, before they are sorted. */
const SLACK = 2000
/** A name whose bytes are shown as they are. */
const PLAIN = /^[\x20-\x24\x26-\x7e]+$/

/** Returns the first names of a folder after a name, in the order of their bytes. Only these are kept in memory. */
const namesAfter = Effect.fnUntraced(function* (
  path: string,
  folder: fs.FileHandle,
  { after, most }: { readonly after: Buffer | undefined; readonly most: number },
  isListed: (name: string) => boolean
) {
  // Each byte is a character, so that texts have the order of bytes.
  const first = after?.toString("latin1")
  let names: Array<string> = []
  let last: string | undefined
  const keep = () => {
    names.sort()
    if (names.length > most) names = names.slice(0, most)
    if (names.length === most) last = names[most - 1]
  }
  yield* forEachName(`/proc/self/fd/${folder.fd}/.`, (name) => {
    if (first !== undefined && name <= first) return
    if (last !== undefined && name > last) return
    if (!isListed(PLAIN.test(name) ? name : shownName(Buffer.from(name, "latin1")))) return
    names.push(name)
    if (names.length >= most + SLACK) keep()
  }).pipe(Effect.catchTag("IoError", (error) => Effect.fail(toIoError(path, error))))
  keep()
  return names.map((name) => Buffer.from(name, "latin1"))
})

const isGone = ({ code }: IoError) => code === "ENOENT" || code === "EINVAL"

const SIZES = "5 seconds"
const CONCURRENCY = 16

export interface ListRequest {
  readonly path: string
  readonly after?: string
  readonly limit: number
  readonly sizes: boolean
}

/** Lists a page of a folder by name; names that callers may not see are left out. */
export const listFolder = Effect.fnUntraced(function* (site: Site, request: ListRequest) {
  const place = yield* site.place(request.path)
  const folder = yield* site.folderAt(place)
  const isListed = (name: string) => !isTemporary(name) && !site.isHidden(childPath(place.path, name))
  const after = request.after === undefined ? undefined : bytesOf(request.after)
  const names = yield* namesAfter(place.path, folder, { after, most: request.limit + 1 }, isListed)
  const layerOf = yield* site.layersIn(place)
  const entry = Effect.fnUntraced(function* (bytes: Buffer) {
    const name = shownName(bytes)
    const path = childPath(place.path, name)
    const own = yield* site.place(path)
    // A volume or mount is shown as what it is, not as what the server has put in its place.
    if (own.shared !== undefined && own.parts.length === 0) {
      const { layer, stats } = yield* Effect.scoped(statsOf(site, own))
      return [entryOf({ site, path, name }, stats, layer, undefined)]
    }
    const found = yield* lstatIn(path, folder, bytes)
    if (Option.isNone(found)) return []
    const stats = found.value
    const target = stats.isSymbolicLink() ? yield* readLink(path, folder, bytes) : undefined
    return [entryOf({ site, path, name }, stats, yield* layerOf(bytes, stats), target)]
  })
  const found = yield* Effect.forEach(
    names.slice(0, request.limit),
    // An entry may be removed while it is listed, and the path of another one is too long for callers.
    (name) =>
      Effect.catchIf(
        entry(name),
        (error) => (error._tag === "IoError" ? isGone(error) : error._tag === "FileRefused"),
        () => Effect.succeed([])
      ),
    { concurrency: CONCURRENCY }
  )
  const all = found.flat()
  const entries = all.slice(0, fitting(all))
  const last = entries.length < all.length ? bytesOf(entries.at(-1)?.name ?? "") : names[request.limit - 1]
  const isMore = (entries.length < all.length || names.length > request.limit) && last !== undefined
  return {
    entries: request.sizes ? yield* withSizes(site, place.path, entries) : entries,
    ...(isMore ? { next: shownName(last) } : {})
  }
})

/** Bytes of a page, beside which one entry fits into the answer. */
const PAGE_BYTES = 2 * 1024 * 1024
const ENTRY_BYTES = 300

/** Returns how many entries of a page are sent: names and targets of links may be long. */
const fitting = (entries: ReadonlyArray<FileEntry>): number => {
  let bytes = 0
  for (const [index, { managed = [], name, target = "" }] of entries.entries()) {
    bytes += ENTRY_BYTES + 3 * (name.length + target.length + managed.join().length)
    if (bytes > PAGE_BYTES && index > 0) return index
  }
  return entries.length
}

/** Returns the bytes of a folder. What callers may not see does not count. */
const sizeOf = Effect.fnUntraced(function* (site: Site, path: string) {
  if (!site.hasPatterns) {
    const handle = yield* site.folderAt(yield* site.place(path))
    return (yield* treeSize(`/proc/self/fd/${handle.fd}/.`)).bytes
  }
  let bytes = 0
  yield* walkVisible(site, path, ({ stats }) => {
    bytes += stats.blocks * 512
    return Effect.void
  })
  return bytes
})

/** Adds the bytes of folders, as far as they are measured within {@link SIZES}. */
const withSizes = Effect.fnUntraced(function* (
  site: Site,
  folder: string,
  entries: ReadonlyArray<FileEntry>
) {
  const sized = [...entries]
  yield* Effect.forEach(
    entries,
    Effect.fnUntraced(function* (entry, index) {
      if (entry.type !== "folder") return
      sized[index] = { ...entry, size: yield* sizeOf(site, childPath(folder, entry.name)) }
    }, Effect.scoped),
    { concurrency: 4, discard: true }
  ).pipe(
    Effect.timeoutOption(SIZES),
    // A folder that is gone, or has become a link, has no size.
    Effect.catch(() => Effect.void)
  )
  return sized
})

const listed = (name: string, stats: Stats): ListedEntry => ({
  name,
  type: typeOf(stats),
  mode: stats.mode & PERMISSIONS,
  modified: Math.max(0, Math.floor(stats.mtimeMs / 1000)),
  size: stats.isDirectory() ? 0 : stats.size
})

/** Opens a folder for reading until the scope ends. The returned effect has the next entries; none: the end. */
export const openEntriesOf = Effect.fnUntraced(function* (site: Site, given: string, scope: Scope.Scope) {
  const place = yield* site.place(given)
  const walked = yield* site.folderAt(place)
  const at = `/proc/self/fd/${walked.fd}/.`
  const folder = yield* Scope.provide(open(place.path, at, FOLDER), scope)
  const names = yield* Scope.provide(openEntries(at, ENTRIES_AT_ONCE), scope)
  const oneAtATime = yield* Semaphore.make(1)

  /** A volume or mount is shown as what it is. */
  const entryOf = Effect.fnUntraced(function* (bytes: Buffer) {
    const name = shownName(bytes)
    const path = childPath(place.path, name)
    if (isTemporary(name) || site.isHidden(path)) return []
    if (site.isSharedTarget(path)) {
      const { entry } = yield* Effect.scoped(statEntry(site, path))
      const modified = Math.floor(Date.parse(entry.modified_at) / 1000)
      return [{ name, type: entry.type, mode: Number.parseInt(entry.mode, 8), modified, size: entry.size }]
    }
    const found = yield* lstatIn(path, folder, bytes)
    return Option.isNone(found) ? [] : [listed(name, found.value)]
  })

  const read: Effect.Effect<ReadonlyArray<ListedEntry>, AccessError> = Effect.gen(function* () {
    while (true) {
      const batch = yield* Effect.uninterruptible(nextEntries(names, at, ENTRIES_AT_ONCE))
      if (batch.length === 0) return []
      const entries = yield* Effect.forEach(
        batch,
        ({ name }) =>
          // An entry may change while it is listed.
          Effect.catchIf(
            entryOf(name),
            (error) => error._tag !== "IoError" || error.code === "ENOENT" || error.code === "EINVAL",
            () => Effect.succeed([])
          ),
        { concurrency: CONCURRENCY }
      )
      if (entries.some((some) => some.length > 0)) return entries.flat()
    }
  })
  return oneAtATime.withPermit(read)
})
