/**
 * The task of unpacking an archive (spec 10.7, 11.4). The names of the record are hidden folders beside the target:
 * `aside` while the archive is read, `old` once it is complete and its entries are moved into place.
 */
import * as fs from "node:fs/promises"
import { Array as Arr, Effect, Option, type Scope } from "effect"
import type { UnpackTask } from "../../contract/domain/FileTask.ts"
import { type Arrival, archiveFile, readArchive } from "../archives/source.ts"
import type { ArchiveFile } from "../archives/zip.ts"
import type { IoError } from "../disk/fsio.ts"
import { chownLike, enter, enterAll, io, lstatIn, within } from "../disk/safePath.ts"
import type { ChangeScene } from "./changes.ts"
import { openFile, syncFolder } from "./contents.ts"
import { checkPlacing, type Placing, placeTree } from "./placing.ts"
import { type AccessError, conflict, toFileError } from "./refused.ts"
import type { Place, Site } from "./Site.ts"
import { Stage } from "./Stage.ts"
import { reasonOf, stagingOf, type TaskRecord, type TaskWork } from "./taskRecord.ts"
import { removeInside, renameAt } from "./trees.ts"

const ARCHIVE = Buffer.from("archive")
const TREE = Buffer.from("tree")

/** The deepest folder on the way to the target that exists. */
interface Base {
  readonly to: Place
  readonly path: string
  readonly folder: fs.FileHandle
  /** That folder and those above it. */
  readonly folders: ReadonlyArray<fs.FileHandle>
  /** Names of the target below it. */
  readonly missing: ReadonlyArray<Buffer>
}

const parentOf = (path: string, up: number): string => {
  const names = path.split("/").slice(1)
  return `/${names.slice(0, names.length - up).join("/")}`
}

const baseOf = Effect.fnUntraced(function* (
  site: Site,
  given: string
): Effect.fn.Return<Base, AccessError, Scope.Scope> {
  const to = given === "/" ? yield* site.place(given) : yield* site.writable(given)
  const folders = yield* Effect.mapError(site.foldersTo(to), toFileError(to.path))
  const missing = to.parts.slice(folders.length - 1)
  return {
    to,
    path: parentOf(to.path, missing.length),
    folder: Arr.lastNonEmpty(folders),
    folders,
    missing
  }
})

/** Returns the folder in which a hidden one lies. */
const holderOf = Effect.fnUntraced(function* ({ folders, path }: Base, name: Buffer) {
  for (const [index, folder] of folders.entries())
    if (Option.isSome(yield* lstatIn(path, folder, name))) return { folder, index }
  return undefined
})

const placingOf = ({ overwrite }: UnpackTask, site: Site, take: Placing["take"], aside: Buffer): Placing => ({
  site,
  overwrite,
  aside,
  take
})

type Save = (record: TaskRecord) => Effect.Effect<void, IoError>

/** Moves the entries of a complete tree into place, and returns the record of the end. */
const commit = Effect.fnUntraced(function* (
  { room, site }: ChangeScene,
  { base, record, task }: { readonly base: Base; readonly record: TaskRecord; readonly task: UnpackTask },
  save: Save
) {
  const names = stagingOf(record.staging)
  const holder = yield* holderOf(base, names.old)
  const late: Array<string> = []
  if (holder !== undefined) {
    const { folder, index } = holder
    const path = parentOf(base.to.path, base.to.parts.length - index)
    const tree = yield* enter(path, folder, names.old)
    const take = (bytes: number, entries: number) => room.take(site, base.to, bytes, entries)
    if (Option.isSome(tree)) {
      const pair = { path, from: tree.value, to: folder }
      const placed = placeTree(placingOf(task, site, take, names.aside), pair, (one) => {
        if (late.length < 1000) late.push(one)
      })
      yield* Effect.ensuring(placed, Effect.ignore(removeInside(path, { folder, name: names.old })))
    }
    yield* syncFolder(path, folder)
  }
  const [first, ...others] = late
  const end: TaskRecord =
    first === undefined
      ? { ...record, state: "done" }
      : {
          ...record,
          state: "failed",
          refused: late.length,
          reason: reasonOf(
            `${first}${others.length === 0 ? "" : ` and ${others.length} more`} appeared meanwhile: what the server has made stays, and all other entries are in place`
          )
        }
  yield* save(end)
  return end
}, Effect.scoped)

const gone = (path: string) => conflict(path, "the folder of the unfinished archive was removed")

/** The folder that hides an archive until it is complete; only the daemon enters it. */
const hiddenIn = Effect.fnUntraced(function* ({ folder, path }: Base, name: Buffer) {
  yield* io(path, () => fs.mkdir(within(folder, name), 0o700))
  const hidden = yield* enter(path, folder, name)
  return Option.isNone(hidden) ? yield* gone(path) : hidden.value
})

interface Filling {
  readonly base: Base
  readonly hidden: fs.FileHandle
  readonly task: UnpackTask
  readonly arrival: Arrival | undefined
  readonly aside: Buffer
}

/** Reads the archive into a hidden folder, and checks that its entries can be moved into place. */
const fill = Effect.fnUntraced(function* (
  { room, site }: ChangeScene,
  { arrival, aside, base, hidden, task }: Filling,
  onRead: (read: number, total?: number) => void
) {
  const { folder, missing, path, to } = base
  const take = yield* room.taking(site, to)
  yield* take(0, 2 + missing.length)
  let source: Arrival | ArchiveFile
  if (arrival === undefined) {
    const place = yield* site.place(task.path ?? "")
    source = yield* archiveFile(place.path, yield* openFile(site, place))
    onRead(0, source.size)
  } else source = arrival
  const owner = yield* io(path, () => folder.stat())
  yield* io(path, () => fs.mkdir(within(hidden, TREE), 0o700))
  const tree = yield* enter(path, hidden, TREE)
  if (Option.isNone(tree)) return yield* gone(path)
  // The folders that are made in it get its owner.
  yield* chownLike(path, tree.value, owner)
  const inside = yield* enterAll(path, tree.value, missing, () => {})
  if (Option.isNone(inside)) return yield* gone(path)
  const stage = yield* Stage.make({ site, room, take, tree: inside.value, to, owner })
  const spool = { folder: hidden, name: ARCHIVE }
  yield* readArchive(source, { format: task.format, spool, take, onRead }, (member) => stage.add(member))
  yield* checkPlacing(placingOf(task, site, take, aside), { path, from: tree.value, to: folder })
}, Effect.scoped)

/** Removes what an incomplete archive has left. */
const removeLeft = Effect.fnUntraced(function* (base: Base, name: Buffer) {
  const holder = yield* holderOf(base, name)
  if (holder !== undefined) yield* removeInside(base.path, { folder: holder.folder, name })
})

/** @param arrival the archive, if it arrives as the body of a request */
export const unpackTask = (task: UnpackTask, arrival: Arrival | undefined): TaskWork => ({
  begin: { total: task.size ?? 0, unit: "bytes" },
  run: (scene, { isResumed, record }, { note, save }) =>
    Effect.gen(function* () {
      const base = yield* baseOf(scene.site, task.to)
      const names = stagingOf(record.staging)
      let now = record
      if (isResumed) {
        const isComplete = record.next > 0 || (yield* holderOf(base, names.old)) !== undefined
        if (isComplete) return yield* Effect.uninterruptible(commit(scene, { base, record, task }, save))
        yield* removeLeft(base, names.aside)
        if (arrival !== undefined) {
          return yield* conflict(
            base.to.path,
            "the node was restarted while the archive arrived; nothing was unpacked",
            "Send the archive again."
          )
        }
      }
      const onRead = (next: number, total = now.total) => {
        now = { ...now, next, total }
        note(now)
      }
      const remove = Effect.ignore(removeInside(base.path, { folder: base.folder, name: names.aside }))
      return yield* Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const hidden = yield* hiddenIn(base, names.aside)
          yield* restore(fill(scene, { arrival, aside: names.aside, base, hidden, task }, onRead))
          yield* renameAt(base.path, { folder: hidden, name: TREE }, { folder: base.folder, name: names.old })
          yield* remove
          now = { ...now, next: Math.max(1, now.next), total: Math.max(1, now.next, now.total) }
          yield* save(now)
          if (arrival !== undefined) yield* arrival.received
          return yield* commit(scene, { base, record: now, task }, save)
        }).pipe(Effect.onError(() => remove))
      )
    }).pipe(
      Effect.scoped,
      Effect.ensuring(Effect.sync(() => scene.room.freed())),
      scene.room.explained(scene.site)
    ),
  undo: (scene, record) =>
    Effect.gen(function* () {
      const base = yield* baseOf(scene.site, task.to)
      const names = stagingOf(record.staging)
      yield* removeLeft(base, names.aside)
      if ((yield* holderOf(base, names.old)) === undefined) return undefined
      // Part of it may be in place already.
      return yield* commit(scene, { base, record, task }, () => Effect.void)
    }).pipe(Effect.scoped)
})
