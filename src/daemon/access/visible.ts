/** The walk through what callers may see below a path, for archives and searches. */
import type { Stats } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { Effect, Option, type Scope } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { enter, io, isTemporary, lstatIn, openFileIn, type PathRefused } from "../disk/safePath.ts"
import { noSuchPath } from "./refused.ts"
import type { Place, Site } from "./Site.ts"
import { entriesIn, MAX_DEPTH } from "./trees.ts"

type WalkError = FileRefused | PathRefused | IoError

export interface Visible {
  readonly path: string
  readonly stats: Stats
  /** Opens a file for reading; nothing if it is gone. */
  readonly open: Effect.Effect<Option.Option<FileHandle>, WalkError, Scope.Scope>
  /** Where a link is. */
  readonly at: { readonly folder: FileHandle; readonly name: Buffer } | undefined
}

/** Runs an effect for each entry, parents before children. Entries that change meanwhile are left out. */
export type Use<E> = (entry: Visible) => Effect.Effect<void, E, Scope.Scope>

/** Whether an entry was replaced or removed while it was looked at. */
const hasChanged = (error: WalkError): boolean =>
  error._tag === "PathRefused" || (error._tag === "IoError" && error.code === "ENOENT")

const changed = <A>(self: Effect.Effect<Option.Option<A>, WalkError, Scope.Scope>) =>
  Effect.catchIf(self, hasChanged, () => Effect.succeed(Option.none<A>()))

const walkFolder = <E>(
  site: Site,
  path: string,
  folder: FileHandle,
  use: Use<E>,
  depth: number
): Effect.Effect<void, E | WalkError> =>
  entriesIn(folder, ({ name }) => {
    const shown = shownName(name)
    const child = childPath(path, shown)
    if (isTemporary(shown) || site.isHidden(child)) return Effect.void
    return visit(site, child, { folder, name }, use, depth)
  })

const visit = <E>(
  site: Site,
  path: string,
  at: { readonly folder: FileHandle; readonly name: Buffer },
  use: Use<E>,
  depth: number
): Effect.Effect<void, E | WalkError> =>
  Effect.gen(function* () {
    // A volume is entered at its source, whatever the server has put in its place.
    if (site.isSharedTarget(path)) return yield* visitShared(site, yield* site.place(path), use, depth)
    const found = yield* changed(lstatIn(path, at.folder, at.name))
    if (Option.isNone(found)) return
    const stats = found.value
    yield* use({ path, stats, open: changed(openFileIn(path, at.folder, at.name)), at })
    if (!stats.isDirectory() || depth >= MAX_DEPTH) return
    const inside = yield* changed(enter(path, at.folder, at.name))
    if (Option.isSome(inside)) yield* walkFolder(site, path, inside.value, use, depth + 1)
  }).pipe(Effect.scoped)

const visitShared = Effect.fnUntraced(function* <E>(
  site: Site,
  place: Place,
  use: Use<E>,
  depth: number
): Effect.fn.Return<void, E | WalkError, Scope.Scope> {
  const { handle, isFolder } = yield* site.root(place)
  const stats = yield* io(place.path, () => handle.stat())
  yield* use({ path: place.path, stats, open: Effect.succeed(Option.some(handle)), at: undefined })
  if (isFolder) yield* walkFolder(site, place.path, handle, use, depth + 1)
})

/** Walks a file, or a folder with all below it. The folder itself is the first entry. */
export const walkVisible = <E>(site: Site, given: string, use: Use<E>): Effect.Effect<void, E | WalkError> =>
  Effect.gen(function* () {
    const place = yield* site.place(given)
    if (place.parts.length === 0) return yield* visitShared(site, place, use, 0)
    const at = yield* site.parent(place)
    const found = yield* lstatIn(place.path, at.folder, at.name)
    if (Option.isNone(found)) return yield* noSuchPath(place.path)
    yield* visit(site, place.path, at, use, 0)
  }).pipe(Effect.scoped)
