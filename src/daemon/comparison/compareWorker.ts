/** The thread that compares the files of a server with the entries of a backup, in the order of the entries (spec 12.5). */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import { parentPort, workerData } from "node:worker_threads"
import { Effect } from "effect"
import { MOST_SHOWN, type PackedEntry } from "../../contract/domain/Backup.ts"
import { childPath, isWithin, nameBytes, nameOf, parentOf, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { conflict, covered, lacks } from "../access/refused.ts"
import { ENTRY_BYTES } from "../archives/format.ts"
import { IoError, ioSync, orOn } from "../disk/fsio.ts"
import { describe, FOLDER, isTemporary, type Name, READ, within } from "../disk/safePath.ts"
import { entryOf, makeLines } from "../packed/lines.ts"
import { sentFailure } from "../packed/threads.ts"
import { MAX_DEPTH, namesIn, tooDeep } from "../packed/walk.ts"
import type { CompareInput, CompareJob, CompareMessage } from "./comparison.ts"

const MODE = 0o7777

// `comparison.ts` alone starts this thread.
const { ended, fd, own, part, same_since = 0, shared } = workerData as CompareJob
const isEnded = new Int32Array(ended)
const buffer = Buffer.allocUnsafe(1024 * 1024)
const isMerge = part?.mode === "merge"
const missing = new Set((part?.paths ?? []).filter((path) => path !== "/"))

const counted = () => ({ count: 0, bytes: 0, first: [] as string[] })
const covering = counted()
const found = { created: counted(), changed: counted(), removed: counted(), unchanged: counted() }
let needed_bytes = 0

const note = (kind: keyof typeof found | "covered", path: string, bytes = 0) => {
  const kinds = kind === "covered" ? covering : found[kind]
  kinds.count += 1
  kinds.bytes += bytes
  if (kinds.first.length < MOST_SHOWN) kinds.first.push(path)
}

/** A folder of the backup whose entries follow. */
interface Level {
  readonly path: string
  /** The folder of the server, unless it has none. */
  readonly fd: number | undefined
  /** Names that the backup has, as bytes in `latin1`. */
  readonly names: Set<string>
  /** Whether all of it is restored; else only something below it. */
  readonly isRestored: boolean
}

const levels: Array<Level> = []
const { dev } = fs.fstatSync(fd)

type Failure = IoError | FileRefused

const exitIfEnded = () => {
  if (Atomics.load(isEnded, 0) === 1) process.exit()
}

/** An entry that was replaced or removed meanwhile counts as none. */
const unlessGone = <A>(path: string, use: () => A): Effect.Effect<A | undefined, IoError> =>
  ioSync(path, () => {
    exitIfEnded()
    return use()
  }).pipe(orOn(undefined, "ENOENT", "ENOTDIR", "ELOOP", "ENXIO"))

const lstat = (path: string, real: Name) => unlessGone(path, () => fs.lstatSync(real))

const openFolder = Effect.fnUntraced(function* (path: string, real: Name, depth: number) {
  if (depth > MAX_DEPTH) return yield* tooDeep(path)
  return yield* unlessGone(path, () => fs.openSync(real, FOLDER))
})

/** Whether a path is not of the server itself: a volume, a mount, or a file that is being made. */
const isForeign = (path: string, stats: fs.Stats | undefined) =>
  isTemporary(nameOf(path)) ||
  shared.some((target) => isWithin(target, path)) ||
  (stats?.isDirectory() === true && stats.dev !== dev && !own.includes(path))

/** Whether a volume or mount hides an entry of the backup. */
const isCovered = (path: string, type: PackedEntry["type"]) =>
  shared.some((target) => isWithin(target, path) && (path !== target || type !== "folder"))

/** Counts what the backup lacks. A folder with a volume in it stays. */
const remove = Effect.fnUntraced(function* (
  path: string,
  real: Name,
  depth: number
): Effect.fn.Return<void, Failure> {
  const stats = yield* lstat(path, real)
  if (stats === undefined || isForeign(path, stats)) return
  if (!shared.some((target) => isWithin(path, target))) note("removed", path, stats.isFile() ? stats.size : 0)
  if (!stats.isDirectory()) return
  const folder = yield* openFolder(path, real, depth)
  if (folder !== undefined) yield* removeIn(path, folder, depth + 1, () => true)
})

/** Counts what the backup lacks in an open folder, and closes it. */
const removeIn = (path: string, folder: number, depth: number, isLacking: (name: string) => boolean) =>
  Effect.ensuring(
    Effect.flatMap(namesIn(path, `/proc/self/fd/${folder}/.`), (names) =>
      Effect.forEach(
        [...names].filter(isLacking).map((name) => Buffer.from(name, "latin1")),
        (name) => remove(childPath(path, shownName(name)), within({ fd: folder }, name), depth),
        { discard: true }
      )
    ),
    Effect.sync(() => fs.closeSync(folder))
  )

const leave = Effect.fnUntraced(function* ({ fd: folder, isRestored, names, path }: Level, depth: number) {
  if (folder === undefined) return
  const isLacking = (name: string) => isRestored && !isMerge && !names.has(name)
  yield* removeIn(path, folder, depth, isLacking)
})

const digestOf = (file: number) => {
  const hash = createHash("sha256")
  for (;;) {
    exitIfEnded()
    const read = fs.readSync(file, buffer, 0, buffer.length, null)
    if (read === 0) return hash.digest("hex")
    hash.update(buffer.subarray(0, read))
  }
}

/** Whether the bytes of a file are those of its entry. */
const hasDigest = (path: string, real: Name, sha256: string | undefined) =>
  Effect.acquireUseRelease(
    unlessGone(path, () => fs.openSync(real, READ)),
    (file) =>
      ioSync(path, () => file !== undefined && fs.fstatSync(file).isFile() && digestOf(file) === sha256),
    (file) => Effect.sync(() => file !== undefined && fs.closeSync(file))
  )

const typeOf = (stats: fs.Stats) => {
  if (stats.isDirectory()) return "folder"
  if (stats.isFile()) return "file"
  return stats.isSymbolicLink() ? "link" : "other"
}

/** Whether what is there is what the entry has; times do not count. */
const isSame = Effect.fnUntraced(function* (
  { mode, mtime, path, sha256, size, target, type }: PackedEntry,
  real: Name,
  there: fs.Stats
) {
  if (type === "link") {
    const now = yield* unlessGone(path, () => fs.readlinkSync(real, { encoding: "buffer" }))
    return now !== undefined && shownName(now) === target
  }
  if (type === "folder") return isMerge || (there.mode & MODE) === mode
  if ((there.mode & MODE) !== mode || there.size !== size) return false
  const isOld = there.ctimeMs < same_since && Math.max(0, Math.floor(there.mtimeMs / 1000)) === mtime
  return isOld || (yield* hasDigest(path, real, sha256))
})

const isRestoredAt = (path: string) => part === undefined || part.paths.some((one) => isWithin(one, path))
const isOnWay = (path: string) => part?.paths.some((one) => isWithin(path, one)) === true

/** Closes folders until the one of a path is the last. */
const leaveTo = Effect.fnUntraced(function* (path: string): Effect.fn.Return<Level, Failure> {
  for (;;) {
    const last = levels.at(-1)
    if (last === undefined)
      return yield* new IoError({ code: "DAMAGED", message: `the index of the backup has no folder ${path}` })
    if (last.path === path) return last
    levels.pop()
    yield* leave(last, levels.length + 1)
  }
})

/** Refuses what a restore refuses: a folder in the way of a file, or the other way round. */
const refuseInTheWay = (entry: PackedEntry, there: fs.Stats, isRestored: boolean) => {
  const isFolder = entry.type === "folder"
  if (isFolder === there.isDirectory() || (isRestored && !isMerge)) return Effect.void
  return Effect.fail(
    conflict(
      entry.path,
      `it ${describe(there)}, and ${isFolder ? "a folder" : "no folder"} in the backup`,
      "Remove it, or restore with mode replace."
    )
  )
}

const add = Effect.fnUntraced(function* (entry: PackedEntry): Effect.fn.Return<void, Failure> {
  const { path, size = 0, type } = entry
  const isRestored = isRestoredAt(path)
  if (!isRestored && !isOnWay(path)) return
  missing.delete(path)
  if (isRestored && !isMerge && isCovered(path, type)) return note("covered", path, size)
  const name = Buffer.from(nameBytes(nameOf(path)))
  let real: Name = `/proc/self/fd/${fd}/.`
  let there: fs.Stats | undefined
  if (path === "/") there = yield* lstat(path, real)
  else {
    const above = yield* leaveTo(parentOf(path))
    above.names.add(name.toString("latin1"))
    if (above.fd !== undefined) {
      real = within({ fd: above.fd }, name)
      there = yield* lstat(path, real)
    }
  }
  if (isMerge && shared.includes(path)) return yield* covered(path)
  if (isForeign(path, there)) return
  if (there === undefined) note("created", path, size)
  else {
    yield* refuseInTheWay(entry, there, isRestored)
    const same = typeOf(there) === type && (!isRestored || (yield* isSame(entry, real, there)))
    if (isRestored) note(same ? "unchanged" : "changed", path, size)
  }
  if (isRestored) needed_bytes += size + ENTRY_BYTES
  const folder = there?.isDirectory() === true ? yield* openFolder(path, real, levels.length) : undefined
  if (type === "folder") levels.push({ path, fd: folder, names: new Set(), isRestored })
  else if (folder !== undefined) yield* removeIn(path, folder, levels.length + 1, () => true)
})

const linesIn = makeLines()

/** Compares the entries of whole lines. */
const take = Effect.fnUntraced(function* (chunk: Uint8Array): Effect.fn.Return<CompareMessage, Failure> {
  for (const line of yield* linesIn(chunk)) yield* add(yield* entryOf(line))
  return { to: "next" }
})

const finish = Effect.gen(function* () {
  for (let last = levels.pop(); last !== undefined; last = levels.pop()) yield* leave(last, levels.length + 1)
  const [lacking] = missing
  if (lacking !== undefined) return yield* lacks(lacking)
  const covers = covering.count === 0 ? {} : { covered: covering }
  return { to: "end", compared: { ...found, ...covers, needed_bytes } } satisfies CompareMessage
})

const answer = (work: Effect.Effect<CompareMessage, Failure>) =>
  Effect.runSync(Effect.catch(work, (error) => Effect.succeed<CompareMessage>(sentFailure(error))))

parentPort?.on("message", (input: CompareInput) => {
  if (input === "stop") process.exit()
  parentPort?.postMessage(answer(input === "done" ? finish : take(input.bytes)))
})
