/** Trees that a server may change meanwhile: each folder is opened in its open parent, never through a link. */
import type { Dirent, Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Option, type Scope } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { forEachEntry, IoError, orMissing } from "../disk/fsio.ts"
import {
  CREATE,
  chownLike,
  enter,
  io,
  isTemporary,
  lstatIn,
  open,
  openFileIn,
  type PathRefused,
  PERMISSIONS,
  temporaryName,
  within
} from "../disk/safePath.ts"
import { conflict, forbidden, unprocessable } from "./refused.ts"
import type { Located, Place, Site } from "./Site.ts"

type TreeError = FileRefused | PathRefused | IoError

/** Folders that are open at a time in one tree. */
export const MAX_DEPTH = 64
/** A server that writes meanwhile lets a folder have entries again. */
const MAX_ROUNDS = 4
const COPY_CHUNK = 256 * 1024

export const entriesIn = <E>(
  folder: fs.FileHandle,
  use: (entry: Dirent<Buffer>) => Effect.Effect<unknown, E>
): Effect.Effect<void, E | IoError> => forEachEntry(`/proc/self/fd/${folder.fd}/.`, use)

export const renameAt = (path: string, from: Located, to: Located) =>
  io(path, () => fs.rename(within(from.folder, from.name), within(to.folder, to.name)))

const unlink = (path: string, { folder, name }: Located) =>
  io(path, () => fs.unlink(within(folder, name))).pipe(orMissing(undefined))

/** Removes a file, link or tree, if it exists. A mount in it is not entered: 409. `onEntry` is called for each entry. */
export const removeInside = (
  path: string,
  at: Located,
  onEntry: () => void = () => {}
): Effect.Effect<void, TreeError> =>
  Effect.gen(function* () {
    const found = yield* lstatIn(path, at.folder, at.name)
    if (Option.isNone(found)) return
    if (!found.value.isDirectory()) return yield* unlink(path, at)
    const { dev } = yield* io(path, () => at.folder.stat())
    const deep: Array<Buffer> = []
    const empty = (shown: string, folder: fs.FileHandle, depth: number): Effect.Effect<void, TreeError> =>
      entriesIn(folder, (entry) => {
        const { name } = entry
        onEntry()
        if (!entry.isDirectory()) return unlink(shown, { folder, name })
        if (depth < MAX_DEPTH) return remove(childPath(shown, shownName(name)), { folder, name }, depth + 1)
        const near = Buffer.from(temporaryName())
        deep.push(near)
        return renameAt(shown, { folder, name }, { folder: at.folder, name: near }).pipe(orMissing(undefined))
      })
    const remove = (shown: string, one: Located, depth: number): Effect.Effect<void, TreeError> =>
      Effect.gen(function* () {
        for (let round = 1; ; round++) {
          const folder = yield* enter(shown, one.folder, one.name)
          if (Option.isNone(folder)) return
          const opened = folder.value
          if ((yield* io(shown, () => opened.stat())).dev !== dev)
            return yield* conflict(shown, "something is mounted there")
          yield* empty(shown, opened, depth)
          const failed = yield* io(shown, () => fs.rmdir(within(one.folder, one.name))).pipe(
            orMissing(undefined),
            Effect.as(undefined),
            Effect.catchIf(({ code }) => code === "ENOTEMPTY" && round < MAX_ROUNDS, Effect.succeed)
          )
          if (failed === undefined) return
        }
      }).pipe(Effect.scoped)
    yield* remove(path, at, 0)
    for (let near = deep.pop(); near !== undefined; near = deep.pop()) {
      yield* remove(path, { folder: at.folder, name: near }, 0)
    }
  })

/** Visits all entries of a tree, parents before children; `use` returns whether a folder is entered. */
export const walkInside = <E>(
  path: string,
  at: fs.FileHandle,
  use: (entry: {
    readonly path: string
    readonly folder: fs.FileHandle
    readonly name: Buffer
    readonly stats: Stats
    /** Folders above it in the tree. A folder at {@link MAX_DEPTH} is not entered. */
    readonly depth: number
  }) => Effect.Effect<boolean, E, Scope.Scope>,
  depth = 0
): Effect.Effect<void, E | TreeError> =>
  entriesIn(at, ({ name }) =>
    Effect.gen(function* () {
      const shown = childPath(path, shownName(name))
      const found = yield* lstatIn(shown, at, name)
      if (Option.isNone(found)) return
      const isEntered = yield* use({ path: shown, folder: at, name, stats: found.value, depth })
      if (!isEntered || !found.value.isDirectory() || depth >= MAX_DEPTH) return
      const next = yield* enter(shown, at, name)
      if (Option.isSome(next)) yield* walkInside(shown, next.value, use, depth + 1)
    }).pipe(Effect.scoped)
  )

export interface CopyOptions {
  /** Runs before bytes and entries are written. */
  readonly take: (bytes: number, entries: number) => Effect.Effect<void, TreeError>
  /** Fails for an entry that is not copied. */
  readonly check: (path: string, stats: Stats) => Effect.Effect<void, TreeError>
}

const copyFile = Effect.fnUntraced(function* (
  path: string,
  from: Located,
  to: Located,
  { take }: CopyOptions
) {
  const source = yield* openFileIn(path, from.folder, from.name)
  if (Option.isNone(source)) return yield* new IoError({ code: "ENOENT", message: path })
  const file = source.value
  const stats = yield* io(path, () => file.stat())
  yield* take(0, 1)
  const made = yield* open(path, within(to.folder, to.name), CREATE, 0o600)
  const chunk = Buffer.allocUnsafe(COPY_CHUNK)
  for (;;) {
    const { bytesRead } = yield* io(path, () => file.read(chunk, 0, chunk.length, null))
    if (bytesRead === 0) break
    yield* take(bytesRead, 0)
    yield* io(path, () => made.writeFile(chunk.subarray(0, bytesRead)))
  }
  yield* chownLike(path, made, yield* io(path, () => to.folder.stat()))
  yield* io(path, () => made.chmod(stats.mode & PERMISSIONS))
  yield* io(path, () => made.utimes(stats.atime, stats.mtime))
}, Effect.scoped)

/** Copies a file, link or tree to a name that does not exist. The owner is that of the new folder; no set-id bit stays. */
export const copyInside = (
  path: string,
  from: Located,
  to: Located,
  options: CopyOptions,
  depth = 0
): Effect.Effect<void, TreeError> =>
  Effect.gen(function* () {
    if (depth > MAX_DEPTH)
      return yield* unprocessable(
        `${path}: it lies more than ${MAX_DEPTH} folders deep`,
        "Copy its folders one by one."
      )
    const found = yield* lstatIn(path, from.folder, from.name)
    if (Option.isNone(found)) return yield* new IoError({ code: "ENOENT", message: path })
    const stats = found.value
    yield* options.check(path, stats)
    const owner = yield* io(path, () => to.folder.stat())
    if (stats.isSymbolicLink()) {
      yield* options.take(0, 1)
      const target = yield* io(path, () =>
        fs.readlink(within(from.folder, from.name), { encoding: "buffer" })
      )
      yield* io(path, () => fs.symlink(target, within(to.folder, to.name)))
      if (process.geteuid?.() === 0)
        yield* io(path, () => fs.lchown(within(to.folder, to.name), owner.uid, owner.gid))
      return
    }
    if (stats.isFile()) return yield* copyFile(path, from, to, options)
    if (!stats.isDirectory()) return yield* conflict(path, "it is neither a file, a folder nor a link")
    yield* options.take(0, 1)
    const source = yield* enter(path, from.folder, from.name)
    yield* io(path, () => fs.mkdir(within(to.folder, to.name), 0o700))
    const made = yield* enter(path, to.folder, to.name)
    if (Option.isNone(source) || Option.isNone(made))
      return yield* new IoError({ code: "ENOENT", message: path })
    const [inside, copy] = [source.value, made.value]
    yield* entriesIn(inside, ({ name }) => {
      const shown = shownName(name)
      // What another write has not finished is not seen, and a copy of it would stay.
      if (isTemporary(shown)) return Effect.void
      return copyInside(
        childPath(path, shown),
        { folder: inside, name },
        { folder: copy, name },
        options,
        depth + 1
      )
    })
    yield* chownLike(path, copy, owner)
    yield* io(path, () => copy.chmod(stats.mode & PERMISSIONS))
  }).pipe(Effect.scoped)

/** Entries in which rules of the blueprint are looked for. */
const MOST_CHECKED = 200_000

export const refuseFixed = (site: Site, path: string) => {
  const fixed = site.fixedWithin(path)
  return fixed === undefined
    ? Effect.void
    : conflict(
        path,
        `${site.isHidden(fixed) ? "something in it" : fixed} is a volume or mount, which stays where it is`,
        "Name what lies beside it."
      )
}

/** Refuses a tree for an entry in it whose name callers do not see. */
export const holdsHidden = (path: string) =>
  forbidden(path, "it has something in it that callers may not reach")

/** Refuses a tree that has something in it which callers may not write, or would have at `to`. */
export const refuseProtected = Effect.fnUntraced(function* (
  site: Site,
  { path }: Place,
  at: Located,
  to: string = path,
  isRead = false
) {
  if (!site.hasPatterns) return
  const folder = yield* enter(path, at.folder, at.name).pipe(
    Effect.catchTag("PathRefused", () => Effect.succeed(Option.none<fs.FileHandle>()))
  )
  if (Option.isNone(folder)) return
  let entries = 0
  yield* walkInside(path, folder.value, (entry) => {
    entries += 1
    if (entries > MOST_CHECKED)
      return unprocessable(
        `${path}: it has more than ${MOST_CHECKED} entries`,
        "Change its folders one by one."
      )
    if (entry.depth >= MAX_DEPTH && entry.stats.isDirectory())
      return unprocessable(
        `${path}: it has folders more than ${MAX_DEPTH} deep`,
        "Change its folders one by one."
      )
    if (site.isHidden(entry.path)) return holdsHidden(path)
    const why = isRead ? undefined : site.whyNotWritable(entry.path)
    const other = site.whyNotWritable(`${to}${entry.path.slice(path.length)}`)
    if (why !== undefined) return forbidden(entry.path, why)
    return other === undefined
      ? Effect.succeed(true)
      : forbidden(`${to}${entry.path.slice(path.length)}`, other)
  })
}, Effect.scoped)
