/**
 * `copy` entries into folders that other processes may change meanwhile: an instance that has run, or a shared folder.
 * Nothing is written through a link. Links of the source are left out, and so are empty folders.
 */

import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, join } from "node:path"
import { Effect } from "effect"
import type { Copy } from "../../contract/domain/Blueprint.ts"
import { type CopyEntry, type FilePlan, isHome } from "../../contract/domain/filePlan.ts"
import { forEachEntry, IoError, io, openFile } from "../disk/fsio.ts"
import { copyFileInside, type PathRefused } from "../disk/safePath.ts"
import { copySource, entriesOf, type FileSources, openSource, sharedSource } from "./sources.ts"

const READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY
const NOFOLLOW = READ | constants.O_NOFOLLOW

/** The limit of entries of a folder that is copied into the instance folder itself. */
const MAX_ENTRIES = 10_000

const refusedPath = ({ path, reason }: PathRefused) =>
  new IoError({ code: "REFUSED", message: `state.copy: the target ${path} is refused: ${reason}` })

const copyFile = Effect.fnUntraced(function* (from: string, flags: number, root: string, path: string) {
  const file = yield* openFile(from, flags)
  yield* copyFileInside(root, path, file).pipe(
    Effect.catchTag("PathRefused", (error) => Effect.fail(refusedPath(error)))
  )
}, Effect.scoped)

const copyFolder = (from: string, root: string, path: string): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const folder = yield* openFile(from, NOFOLLOW | constants.O_DIRECTORY)
    const inside = `/proc/self/fd/${folder.fd}`
    yield* forEachEntry(inside, (entry) => {
      const [source, target] = [`${inside}/${entry.name}`, join(path, String(entry.name))]
      if (entry.isDirectory()) return copyFolder(source, root, target)
      return entry.isFile() ? copyFile(source, NOFOLLOW, root, target) : Effect.void
    })
  }).pipe(Effect.scoped)

const copyEntry = Effect.fnUntraced(function* (
  copy: Copy,
  root: string,
  parts: ReadonlyArray<string>,
  sources: FileSources
) {
  const source = yield* copySource(copy, sources)
  const opened = yield* openSource(source)
  const from = `/proc/self/fd/${opened.handle.fd}`
  const path = parts.join("/")
  yield* opened.folder ? copyFolder(`${from}/.`, root, path) : copyFile(from, READ, root, path)
}, Effect.scoped)

const sharedPlace = Effect.fnUntraced(function* (
  { copy, parts, within }: CopyEntry & { readonly within: NonNullable<CopyEntry["within"]> },
  sources: FileSources
) {
  const { real } = yield* sharedSource(within, sources)
  const rest = parts.slice(within.parts.length)
  const folder = (yield* io(real, () => fs.stat(real))).isDirectory()
  if (folder) return { root: real, rest }
  return yield* new IoError({
    code: "REFUSED",
    message: `state.copy: the target of ${copy.source} is a file that is shared`
  })
})

/** Copies entries into an instance folder, or into the shared folder in which the target lies. */
export const copyInto = Effect.fnUntraced(function* (
  files: string,
  copies: ReadonlyArray<CopyEntry>,
  sources: FileSources
) {
  for (const { within, ...entry } of copies) {
    const { rest, root } =
      within === undefined
        ? { root: files, rest: entry.parts }
        : yield* sharedPlace({ ...entry, within }, sources)
    yield* copyEntry(entry.copy, root, rest, sources)
  }
})

/** Copies the entries whose targets lie in shared folders. */
export const copyIntoShared = ({ copies }: FilePlan, sources: FileSources) =>
  copyInto(
    "",
    copies.filter(({ within }) => within !== undefined),
    sources
  )

/** Returns the copies of a time; one into the instance folder itself becomes those of its entries. */
export const copiesOf = Effect.fnUntraced(function* (
  all: ReadonlyArray<Copy>,
  time: NonNullable<Copy["when"]>,
  sources: FileSources
) {
  const due = all.filter(({ when = "create" }) => when === time)
  const copies = yield* Effect.forEach(
    due,
    Effect.fnUntraced(function* (copy) {
      if (!isHome(copy.target)) return [copy]
      const { real, what } = yield* copySource(copy, sources)
      const isFolder = (yield* io(what, () => fs.stat(real))).isDirectory()
      if (!isFolder) return [{ ...copy, target: basename(copy.source) }]
      const entries = yield* entriesOf(
        real,
        what,
        MAX_ENTRIES,
        "state.copy",
        "copy it into a folder of the instance"
      )
      return entries
        .filter((entry) => !entry.isSymbolicLink())
        .map(({ name }): Copy => ({ ...copy, source: join(copy.source, name), target: name }))
    })
  )
  return copies.flat()
})
