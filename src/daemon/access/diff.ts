/** What a server has written over its base (spec 10.3). */
import type { Stats } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { Effect, Option, type Scope } from "effect"
import { childPath, type FileDifference, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import {
  enter,
  enterAll,
  isTemporary,
  lstatIn,
  openRoot,
  type PathRefused,
  PERMISSIONS
} from "../disk/safePath.ts"
import { unprocessable } from "./refused.ts"
import { bytesOf, isCopy, type Site } from "./Site.ts"
import { entriesIn, MAX_DEPTH } from "./trees.ts"

const MOST_DIFFERENCES = 50_000
type DiffError = FileRefused | PathRefused | IoError

/** One folder: as the server sees it, what was written there, and what lies below, the top layer first. */
interface Folders {
  readonly path: string
  readonly shown: FileHandle
  readonly written: FileHandle
  readonly lower: ReadonlyArray<FileHandle>
}

const sizeOf = (stats: Stats): number => (stats.isFile() ? Math.min(Number.MAX_SAFE_INTEGER, stats.size) : 0)

/** Whether a file was only brought up from below, as a program that opens it for writing does. */
const isSame = (stats: Stats, lower: Stats): boolean =>
  stats.isFile() &&
  lower.isFile() &&
  stats.size === lower.size &&
  Math.abs(stats.mtimeMs - lower.mtimeMs) < 1 &&
  (stats.mode & PERMISSIONS) === (lower.mode & PERMISSIONS)

/** Opens a folder, unless it is none or gone. */
const folderIn = (path: string, folder: FileHandle, name: Buffer) =>
  Effect.catchTag(enter(path, folder, name), "PathRefused", () => Effect.succeed(Option.none<FileHandle>()))

class Differences {
  readonly #site: Site
  readonly all: Array<FileDifference> = []
  /** Whether a file of a plain folder is still what was copied. */
  readonly #unchanged: (stats: Stats, lower: Stats) => boolean

  constructor(site: Site, unchanged: (stats: Stats, lower: Stats) => boolean) {
    this.#site = site
    this.#unchanged = unchanged
  }

  #add(path: string, change: FileDifference["change"], stats: Stats): Effect.Effect<void, FileRefused> {
    if (this.all.length >= MOST_DIFFERENCES) {
      return unprocessable(
        `the server differs from its base in more than ${MOST_DIFFERENCES} paths`,
        "List its folders, whose entries name their layer."
      )
    }
    this.all.push({ path, change, size: sizeOf(stats) })
    return Effect.void
  }

  /** Whether a path is compared here: it is visible, and neither shared nor a layer of its own. */
  #isOwn(path: string, name: string): boolean {
    const isLayer = this.#site.layout.written.some(({ target }) => `/${target.join("/")}` === path)
    return !isTemporary(name) && !this.#site.isHidden(path) && !this.#site.isSharedTarget(path) && !isLayer
  }

  compare(folders: Folders, depth = 0): Effect.Effect<void, DiffError> {
    const { lower, path, shown, written } = folders
    const seen = new Set<string>()
    const gone = (below: FileHandle) =>
      entriesIn(below, ({ name }) =>
        Effect.gen({ self: this }, function* () {
          const own = shownName(name)
          const child = childPath(path, own)
          if (!this.#isOwn(child, own) || (lower.length > 1 && seen.has(own))) return
          if (lower.length > 1) seen.add(own)
          if (Option.isSome(yield* lstatIn(child, shown, name))) return
          const found = yield* lstatIn(child, below, name)
          if (Option.isSome(found)) yield* this.#add(child, "removed", found.value)
        })
      )
    return Effect.andThen(
      entriesIn(written, ({ name }) => Effect.scoped(this.#entry(folders, name, depth))),
      Effect.forEach(lower, gone, { discard: true })
    )
  }

  readonly #entry = Effect.fnUntraced(function* (
    this: Differences,
    { lower, path, shown, written }: Folders,
    name: Buffer,
    depth: number
  ): Effect.fn.Return<void, DiffError, Scope.Scope> {
    const own = shownName(name)
    const child = childPath(path, own)
    if (!this.#isOwn(child, own)) return
    const found = yield* lstatIn(child, written, name)
    // A whiteout, or an entry that is removed at this moment, is not shown.
    const visible = yield* lstatIn(child, shown, name)
    if (Option.isNone(found) || Option.isNone(visible)) return
    const stats = found.value
    const below = yield* Effect.forEach(lower, (one) => lstatIn(child, one, name))
    const first = below.find(Option.isSome)?.value
    if (!stats.isDirectory()) {
      if (first === undefined) return yield* this.#add(child, "added", stats)
      return this.#unchanged(stats, first) ? undefined : yield* this.#add(child, "changed", stats)
    }
    if (first === undefined) yield* this.#add(child, "added", stats)
    else if (!first.isDirectory()) yield* this.#add(child, "changed", stats)
    const [inside, view] = [yield* folderIn(child, written, name), yield* folderIn(child, shown, name)]
    if (depth >= MAX_DEPTH || Option.isNone(inside) || Option.isNone(view)) return
    const layers = first?.isDirectory() === true ? lower : []
    const next = yield* Effect.forEach(layers, (one) => folderIn(child, one, name))
    yield* this.compare(
      {
        path: child,
        shown: view.value,
        written: inside.value,
        lower: next.flatMap((one) => (Option.isSome(one) ? [one.value] : []))
      },
      depth + 1
    )
  })
}

const byPath = (one: FileDifference, other: FileDifference) => (one.path < other.path ? -1 : 1)

/** Returns the paths at which a server differs from its base, by path. */
export const differences = Effect.fnUntraced(function* (site: Site) {
  const { copied, written } = site.layout
  const { handle: root } = yield* site.root(yield* site.place("/"))
  if (copied !== undefined) {
    const found = new Differences(site, (stats, base) => isCopy(stats, base, copied.since))
    const base = yield* openRoot(copied.base)
    yield* found.compare({ path: "/", shown: root, written: root, lower: [base] })
    return found.all.toSorted(byPath)
  }
  const found = new Differences(site, isSame)
  for (const { lower, target, upper } of written) {
    const path = `/${target.join("/")}`
    const shown = yield* enterAll(path, root, target.map(bytesOf))
    if (Option.isNone(shown)) continue
    yield* found.compare({
      path,
      shown: shown.value,
      written: yield* openRoot(upper),
      lower: yield* Effect.forEach(lower, openRoot)
    })
  }
  return found.all.toSorted(byPath)
})
