/** Changes of files by callers: folders, deletions, permissions, moves and copies (spec 10.3). */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { Data, Effect, Option } from "effect"
import { type FileChange, isWithin } from "../../contract/domain/Files.ts"
import { MOST_ENTRIES } from "../../contract/nodeApi/NodeFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { describe, enter, io, lstatIn, open, temporaryName, within } from "../disk/safePath.ts"
import { parentMade, syncFolder } from "./contents.ts"
import { conflict, forbidden, noSuchPath, unprocessable } from "./refused.ts"
import type { Room } from "./room.ts"
import type { Located, Place, Site } from "./Site.ts"
import {
  copyInside,
  holdsHidden,
  refuseFixed,
  refuseProtected,
  removeInside,
  renameAt,
  walkInside
} from "./trees.ts"
import type { Staged, Staging, Unfinished, Unmade } from "./Unfinished.ts"

/** Entries of one copy, unless a task makes it: the server may add some after the count. */
const MOST_COPIED = 2 * MOST_ENTRIES
/** Opens anything without its contents; a link is opened itself. */
const PATH_ONLY = 0o10000000 | constants.O_NOFOLLOW

export interface Scene {
  readonly site: Site
  readonly room: Room
  readonly unfinished: Unfinished
}

export interface ChangeScene extends Scene {
  /** Default: new names, which are recorded as {@link Unfinished}. */
  readonly staging?: Staged
  /** Entries that one copy may have. Default: {@link MOST_COPIED}. */
  readonly mostCopied?: number
  /** Called for each file and folder of a tree that is copied or deleted. */
  readonly onEntry?: () => void
}

const newName = () => Buffer.from(temporaryName())

const stagingFor = ({ staging, unfinished }: ChangeScene, path: string) =>
  staging === undefined
    ? unfinished.record(path, { aside: newName(), old: newName() })
    : Effect.succeed(staging)

/** Removes a copy that is not in place. */
const discard = Effect.fnUntraced(function* (path: string, { copied }: Staged, aside: Located) {
  if (Option.isNone(yield* lstatIn(path, aside.folder, aside.name))) return
  yield* copied(undefined)
  yield* removeInside(path, aside)
})

export const needEntry = Effect.fnUntraced(function* (site: Site, place: Place) {
  const at = yield* site.parent(place)
  const found = yield* lstatIn(place.path, at.folder, at.name)
  return Option.isNone(found) ? yield* noSuchPath(place.path) : { at, stats: found.value }
})

const makeFolder = Effect.fnUntraced(function* ({ room, site }: Scene, path: string) {
  const place = yield* site.writable(path)
  const made = yield* parentMade(site, room, place)
  const found = yield* lstatIn(place.path, made.folder, made.name)
  if (Option.isSome(found)) {
    if (found.value.isDirectory()) return
    return yield* conflict(place.path, `it ${describe(found.value)}`)
  }
  yield* room.take(site, place, 0, 1)
  yield* enter(place.path, made.folder, made.name, () => {})
})

const remove = Effect.fnUntraced(function* ({ onEntry, site }: ChangeScene, path: string) {
  const place = yield* site.writable(path)
  yield* refuseFixed(site, place.path)
  const { at } = yield* needEntry(site, place)
  yield* refuseProtected(site, place, at)
  yield* removeInside(place.path, at, onEntry)
})

const setMode = Effect.fnUntraced(function* ({ site }: Scene, path: string, mode: string) {
  const place = yield* site.writable(path)
  const { at } = yield* needEntry(site, place)
  const handle = yield* open(place.path, within(at.folder, at.name), PATH_ONLY)
  const stats = yield* io(place.path, () => handle.stat())
  if (stats.isSymbolicLink())
    return yield* conflict(place.path, "it is a symbolic link, which has no permissions")
  if (stats.isFile() && stats.nlink > 1)
    return yield* forbidden(place.path, "it has several names, and would change under all of them")
  yield* io(place.path, () => fs.chmod(`/proc/self/fd/${handle.fd}`, Number.parseInt(mode, 8)))
})

/** Puts an entry of the same folder in place of another, whose old tree is removed afterwards. */
const putInPlace = Effect.fnUntraced(function* (
  scene: ChangeScene,
  path: string,
  from: Located,
  to: Located,
  replaces: boolean
) {
  const rename = (one: Located, other: Located) => renameAt(path, one, other)
  const there = yield* lstatIn(path, to.folder, to.name)
  if (Option.isNone(there)) return yield* rename(from, to)
  if (!replaces) return yield* conflict(path, "it exists", "Send overwrite=replace, or choose another name.")
  if (!there.value.isDirectory()) {
    const moved = yield* lstatIn(path, from.folder, from.name)
    if (Option.isSome(moved) && !moved.value.isDirectory()) return yield* rename(from, to)
  }
  const old: Located = { folder: to.folder, name: (yield* stagingFor(scene, path)).old }
  const placed = Effect.onError(rename(from, to), () => Effect.ignore(rename(old, to)))
  yield* Effect.uninterruptible(Effect.andThen(rename(to, old), placed))
  yield* removeInside(path, old)
})

/** Copies an entry beside its target, then gives it its name. */
const copyTo = Effect.fnUntraced(function* (
  scene: ChangeScene,
  places: { readonly from: Place; readonly to: Place },
  at: { readonly from: Located; readonly to: Located },
  { moves, replaces }: { readonly moves: boolean; readonly replaces: boolean }
) {
  const { from, to } = places
  const { mostCopied = MOST_COPIED, onEntry = () => {}, room, site } = scene
  let entries = 0
  const take = yield* room.taking(site, to)
  const staging = yield* stagingFor(scene, to.path)
  const aside: Located = { folder: at.to.folder, name: staging.aside }
  yield* copyInside(from.path, at.from, aside, {
    take,
    check: (path) => {
      entries += 1
      onEntry()
      if (entries > mostCopied)
        return unprocessable(
          `${from.path}: it has more than ${mostCopied} entries`,
          "Copy its folders one by one."
        )
      return site.isHidden(path) ? holdsHidden(from.path) : Effect.void
    }
  }).pipe(
    Effect.andThen(moves ? staging.copied(from.path) : Effect.void),
    Effect.andThen(putInPlace({ ...scene, staging }, to.path, aside, at.to, replaces)),
    Effect.onError(() => Effect.ignore(discard(to.path, staging, aside)))
  )
  yield* syncFolder(to.path, at.to.folder)
  if (moves) yield* removeInside(from.path, at.from)
})

const transfer = Effect.fnUntraced(function* (
  scene: ChangeScene,
  change: Extract<FileChange, { readonly kind: "move" | "copy" }>
) {
  const { room, site } = scene
  const isMove = change.kind === "move"
  const replaces = change.overwrite === "replace"
  const from = yield* isMove ? site.writable(change.from) : site.place(change.from)
  const to = yield* site.writable(change.path)
  if (isWithin(from.path, to.path)) {
    return yield* unprocessable(`${to.path}: it lies in ${from.path}`, "Choose a target beside it.")
  }
  if (isWithin(to.path, from.path))
    return yield* conflict(to.path, `what is ${isMove ? "moved" : "copied"} lies in it`)
  yield* refuseFixed(site, from.path)
  yield* refuseFixed(site, to.path)
  const { at: source } = yield* needEntry(site, from)
  yield* refuseProtected(site, from, source, to.path, !isMove)
  const target = yield* parentMade(site, room, to)
  if (replaces) yield* refuseProtected(site, to, target)
  const at = { from: source, to: target }
  if (!isMove) return yield* copyTo(scene, { from, to }, at, { moves: false, replaces })
  yield* putInPlace(scene, to.path, source, target, replaces).pipe(
    Effect.catchIf(
      // Another file system, or a folder of the base, which the kernel does not rename.
      (error) => error._tag === "IoError" && error.code === "EXDEV",
      () => copyTo(scene, { from, to }, at, { moves: true, replaces })
    )
  )
})

/** What has become of a write that a killed daemon has left. */
export type Left = "half" | "placed" | "none"

/**
 * Undoes what a killed daemon has left of a write, or removes the old place of a tree whose copy is in place. `forget` notes
 * that the copy is not whole any more.
 */
export const undoWrite = (
  { site }: Pick<Scene, "site">,
  { aside, from, old, path: given }: Unmade,
  forget: Effect.Effect<void, IoError>
) =>
  Effect.gen(function* () {
    const { path, ...place } = yield* site.writable(given)
    const { folder, name } = yield* site.parent({ path, ...place })
    const isThere = (one: Buffer) => Effect.map(lstatIn(path, folder, one), Option.isSome)
    const wasHalf = yield* isThere(aside)
    if (wasHalf && from !== undefined) yield* forget
    if (yield* isThere(old)) {
      if (yield* isThere(name)) yield* removeInside(path, { folder, name: old })
      else yield* renameAt(path, { folder, name: old }, { folder, name })
    }
    yield* removeInside(path, { folder, name: aside })
    if (wasHalf || from === undefined || !(yield* isThere(name))) return wasHalf ? "half" : "none"
    const source = yield* site.writable(from)
    yield* removeInside(from, yield* site.parent(source))
    return "placed"
  }).pipe(
    Effect.scoped,
    // Nothing can be there.
    Effect.catchTag("FileRefused", () => Effect.succeed("none" as const))
  )

/** As {@link undoWrite}, of a change: only copies and moves can be half made. `isCopied`: the copy of a move is whole. */
export const undoStaging = (
  scene: Scene,
  change: FileChange,
  staging: Staging,
  { forget, isCopied }: { readonly isCopied: boolean; readonly forget: Effect.Effect<void, IoError> }
) => {
  if (change.kind !== "copy" && change.kind !== "move") return Effect.succeed("none" as const)
  const from = change.kind === "move" && isCopied ? change.from : undefined
  return undoWrite(scene, { ...staging, path: change.path, from }, forget)
}

class Large extends Data.TaggedError("Large") {}

/** Returns the tree of which a change visits each entry, if so. An overlay does not rename folders of its lower layer. */
const visited = Effect.fnUntraced(function* (site: Site, change: FileChange) {
  if (change.kind === "folder" || change.kind === "mode") return undefined
  const from = yield* site.place(change.kind === "delete" ? change.path : change.from)
  if (change.kind !== "move" || site.layout.written.length > 0) return from
  return (yield* site.place(change.path)).shared === from.shared ? undefined : from
})

/** Whether changes visit more than {@link MOST_ENTRIES} entries. The count ends there, so that no large tree is walked twice. */
export const isLarge = (site: Site, changes: ReadonlyArray<FileChange>): Effect.Effect<boolean> => {
  let entries = changes.length
  const count = (change: FileChange) =>
    Effect.gen(function* () {
      const place = yield* visited(site, change)
      if (place === undefined) return
      const folder = yield* site.folderAt(place)
      yield* walkInside(place.path, folder, () => {
        entries += 1
        return entries > MOST_ENTRIES ? Effect.fail(new Large()) : Effect.succeed(true)
      })
    }).pipe(
      Effect.scoped,
      // A file has no tree, and the change itself says why a path is refused.
      Effect.catchTag(["FileRefused", "PathRefused", "IoError"], () => Effect.void)
    )
  return Effect.forEach(changes, count, { discard: true }).pipe(
    Effect.as(false),
    Effect.catchTag("Large", () => Effect.succeed(true))
  )
}

export const applyChange = (scene: ChangeScene, change: FileChange) => {
  const made = () => {
    switch (change.kind) {
      case "folder":
        return makeFolder(scene, change.path)
      case "delete":
        return remove(scene, change.path)
      case "mode":
        return setMode(scene, change.path, change.mode)
      case "move":
      case "copy":
        return transfer(scene, change)
    }
  }
  const { room, site } = scene
  return made().pipe(
    Effect.scoped,
    Effect.tap(() => Effect.sync(() => room.freed())),
    room.explained(site)
  )
}
