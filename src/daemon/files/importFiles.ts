/** The import of a server's files from another node into a newly made instance. */

import { randomUUID } from "node:crypto"
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Result, type Scope, Stream } from "effect"
import type { FilePlan } from "../../contract/domain/filePlan.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { ControlPlaneError, ControlPlaneUnavailable } from "../../contract/nodeApi/ControlPlaneApi.ts"
import { backoff, makePause } from "../../shared/work/backoff.ts"
import { type InstancePaths, toolError } from "../archives/packFiles.ts"
import { ArchiveRefused, type UnpackOptions, unpackFiles } from "../archives/unpackFiles.ts"
import { entryPath, forEachEntry, type IoError, io, lstat, removeTree } from "../disk/fsio.ts"
import { runProgram } from "../host/runTool.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { isFolder, isSame } from "./changeBase.ts"
import { type Path, treeSize } from "./copyTree.ts"
import { diskLimit } from "./diskLimits.ts"
import { InstallFailed, installFailed } from "./InstallFailed.ts"

/** Returns the files of a server that migrates to this node; fails at once while they are unavailable. */
export type Arrivals = (
  server_id: ServerId
) => Effect.Effect<Stream.Stream<Uint8Array, ControlPlaneUnavailable>, ControlPlaneError, Scope.Scope>

/** Interruptions of a started transfer after which the migration fails. */
const MAX_INTERRUPTIONS = 10
/** The time without a byte after which a transfer counts as interrupted. */
const IDLE_TIMEOUT = "60 seconds"

export const instancePaths = ({ cow, shared }: FilePlan): InstancePaths => ({
  shared: shared.map(({ parts }) => parts.join("/")),
  own: cow.map(({ parts }) => parts.join("/"))
})

interface Replacement extends InstancePaths {
  /** The folder for incoming files, inside the instance, so that both are on one file system. */
  readonly aside: string
  readonly device: number
  /** Whether files that equal those in place stay theirs: a layer then has only what differs from its base. */
  readonly keepsSame: boolean
  /** Gets the paths of the archive that volumes and mounts hide. */
  readonly onHidden: (path: string) => void
}

/** Names the files and links that arrive in a folder which a volume or mount hides, and its subfolders. */
const noteHidden = (folder: Path, path: string, at: Replacement): Effect.Effect<void, IoError> =>
  forEachEntry(folder, (entry) => {
    const within = `${path}/${entry.name.toString("latin1")}`
    return noteEntry(entry.isDirectory(), entryPath(folder, entry.name), within, at)
  })

const noteEntry = (isFolder: boolean, from: Path, path: string, at: Replacement) =>
  Effect.suspend(() => {
    if (isFolder) return noteHidden(from, path, at)
    at.onHidden(`/${Buffer.from(path, "latin1")}`)
    return Effect.void
  })

/** Whether a file is in place as it arrives, but for its time. */
const isInPlace = Effect.fnUntraced(function* (from: Buffer, to: Buffer, stats: Stats) {
  const arriving = yield* lstat(from)
  if (arriving === undefined || arriving.mode !== stats.mode) return false
  return yield* isSame(from, arriving, to)
})

/** Copies the contents of a folder into an empty one on another file system. */
const copyFolder = (from: string, to: string) =>
  Effect.gen(function* () {
    const cp = yield* runProgram(["cp", "--archive", "--no-target-directory", "--", from, to])
    if (cp.code !== 0) return yield* toolError("the files cannot be written", cp.stderr)
  }).pipe(Effect.scoped)

/** Paths are compared with one character for each byte, because names need not be UTF-8. */
const latin = (path: string) => Buffer.from(path).toString("latin1")

/** Replaces `to`, which is `path` in the instance, by `from`, except for shared parts. */
const mergeInto = (from: Path, to: Path, path: string, at: Replacement): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const within = (name: Buffer) => `${path === "" ? "" : `${path}/`}${name.toString("latin1")}`
    const leads = (name: Buffer) =>
      [...at.shared, ...at.own].some((one) => one.startsWith(`${within(name)}/`))
    // Read before any entry is moved.
    const { gid, mode, mtimeMs, uid } = yield* io(`${from}`, () => fs.lstat(from))
    /** Entries that stay and are filled, because of a mount on or in them. */
    const stays = new Map<string, Buffer>()
    yield* forEachEntry(
      to,
      Effect.fnUntraced(function* ({ name }) {
        if (at.shared.includes(within(name)) || within(name) === at.aside) return
        const [arriving, there] = [entryPath(from, name), entryPath(to, name)]
        const stats = yield* io(`stat ${name}`, () => fs.lstat(there))
        const isKept = at.keepsSame && (stats.isDirectory() ? yield* isFolder(arriving) : false)
        if (stats.isDirectory() && (isKept || leads(name) || stats.dev !== at.device))
          stays.set(within(name), there)
        else if (at.keepsSame && (yield* isInPlace(arriving, there, stats)))
          yield* io(`remove ${name}`, () => fs.unlink(arriving))
        else yield* io(`remove ${name}`, () => fs.rm(there, { recursive: true, force: true }))
      })
    )
    yield* forEachEntry(
      from,
      Effect.fnUntraced(function* (entry) {
        const { name } = entry
        const [arriving, there] = [entryPath(from, name), entryPath(to, name)]
        if (at.shared.includes(within(name)))
          return yield* noteEntry(entry.isDirectory(), arriving, within(name), at)
        if (stays.has(within(name)) && !entry.isDirectory())
          return yield* noteEntry(false, arriving, within(name), at)
        if (stays.delete(within(name))) yield* mergeFolder(arriving, there, within(name), at)
        else yield* io(`rename ${name}`, () => fs.rename(arriving, there))
      })
    )
    // Removes their contents that the server no longer has, as far as they are its own.
    for (const [left, folder] of stays) yield* emptyFolder(folder, left, at)
    if (process.geteuid?.() === 0) yield* io(`set the owner of ${to}`, () => fs.chown(to, uid, gid))
    yield* io(`set permissions of ${to}`, () => fs.chmod(to, mode & 0o7777))
    yield* io(`set the time of ${to}`, () => fs.utimes(to, mtimeMs / 1000, mtimeMs / 1000))
  })

const emptyFolder = (folder: Path, path: string, at: Replacement) =>
  forEachEntry(folder, ({ name }) => {
    const inside = `${path}/${name.toString("latin1")}`
    if (at.shared.some((one) => one === inside || one.startsWith(`${inside}/`))) return Effect.void
    return io(`remove ${name}`, () => fs.rm(entryPath(folder, name), { recursive: true, force: true }))
  })

/** Fills a folder that stays; one on another file system, whose path is in the plan, is filled by copying. */
const mergeFolder = Effect.fnUntraced(function* (from: Path, to: Path, path: string, at: Replacement) {
  const { dev } = yield* io(`stat ${to}`, () => fs.lstat(to))
  if (dev === at.device) return yield* mergeInto(from, to, path, at)
  yield* emptyFolder(to, path, at)
  yield* copyFolder(String(from), String(to))
})

/** Replaces the files of a newly made instance by an archive's files, and flushes them to disk. */
export const receiveFiles = Effect.fnUntraced(function* <E>(
  files: string,
  paths: InstancePaths,
  archive: Stream.Stream<Uint8Array, E>,
  {
    keepsSame = false,
    onHidden = () => {},
    ...options
  }: UnpackOptions & Partial<Pick<Replacement, "keepsSame" | "onHidden">> = {}
): Effect.fn.Return<void, E | ArchiveRefused | IoError> {
  const name = `.muster-arriving-${randomUUID()}`
  const aside = join(files, name)
  // Closed to other users until it is complete, so that processes of the server cannot change it.
  yield* io(`create folder ${aside}`, () => fs.mkdir(aside, { mode: 0o700 }))
  yield* Effect.gen(function* () {
    yield* unpackFiles(archive, aside, options)
    const { dev } = yield* io(`stat ${files}`, () => fs.lstat(files))
    const at = { shared: paths.shared.map(latin), own: paths.own.map(latin), aside: name, device: dev }
    yield* mergeInto(aside, files, "", { ...at, keepsSame, onHidden })
    const { atimeMs, mtimeMs } = yield* io(`stat ${files}`, () => fs.lstat(files))
    yield* removeTree(aside)
    yield* io(`set the time of ${files}`, () => fs.utimes(files, atimeMs / 1000, mtimeMs / 1000))
  }).pipe(Effect.onError(() => Effect.ignore(removeTree(aside))))
  const { code } = yield* runProgram(["sync", "--file-system", files])
  if (code !== 0) return yield* new ArchiveRefused({ message: "the files cannot be flushed to disk" })
})

type Attempt = { readonly _tag: "done" | "away" | "broken"; readonly why: string }

const attempt = Effect.fnUntraced(function* (
  files: string,
  spec: ServerSpec,
  paths: InstancePaths,
  arrivals: Arrivals,
  options: UnpackOptions
): Effect.fn.Return<Attempt, InstallFailed, Scope.Scope> {
  const opened = yield* Effect.result(arrivals(spec.id))
  if (Result.isFailure(opened)) {
    const { failure } = opened
    return { _tag: "away", why: failure._tag === "ControlPlaneUnavailable" ? failure.detail : failure._tag }
  }
  const archive = Stream.timeoutOrElse(opened.success, {
    duration: IDLE_TIMEOUT,
    orElse: () => Stream.fail(new ArchiveRefused({ message: "no data for 60 s" }))
  })
  return yield* receiveFiles(files, paths, archive, options).pipe(
    Effect.as<Attempt>({ _tag: "done", why: "" }),
    Effect.catchTags({
      ControlPlaneUnavailable: (error) => Effect.succeed<Attempt>({ _tag: "broken", why: error.detail }),
      ArchiveRefused: (error) => Effect.succeed<Attempt>({ _tag: "broken", why: error.message }),
      IoError: (error) => Effect.fail(installFailed(error))
    })
  )
}, Effect.scoped)

/** Returns the size limit of the files: `disk_space`, plus the blueprint's files, which overlays do not count. */
export const sizeLimit = Effect.fnUntraced(function* (
  files: string,
  spec: ServerSpec,
  { shared }: InstancePaths
) {
  const limit = diskLimit(spec)
  if (limit === 0) return undefined
  const { bytes } = yield* treeSize(files, 0, new Set(shared.map((path) => join(files, path))))
  return limit + bytes
})

/** Fetches the files of a migrating server for `user`, and retries while they are unavailable. */
export const fetchFiles = Effect.fnUntraced(function* (
  files: string,
  spec: ServerSpec,
  paths: InstancePaths,
  arrivals: Arrivals,
  user: RunUser | undefined
): Effect.fn.Return<void, InstallFailed> {
  const limit = yield* Effect.mapError(sizeLimit(files, spec, paths), (error) => installFailed(error))
  const pause = yield* makePause(backoff({ first: "200 millis", longest: "5 seconds" }))
  let interruptions = 0
  while (true) {
    const outcome = yield* attempt(files, spec, paths, arrivals, { user, limit })
    if (outcome._tag === "done") return
    if (outcome._tag === "broken") interruptions += 1
    if (interruptions >= MAX_INTERRUPTIONS)
      return yield* new InstallFailed({
        reason: `its files cannot be fetched: ${outcome.why}`,
        remedy: "check that the control plane and both nodes reach each other"
      })
    const line = `the files cannot be fetched, retrying: ${outcome.why}`
    yield* outcome._tag === "broken" ? Effect.logWarning(line) : Effect.logDebug(line)
    yield* pause
  }
})
