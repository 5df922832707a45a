/** `muster files get`. */
import { randomUUID } from "node:crypto"
import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname } from "node:path"
import { Effect, Option, Result, Stream } from "effect"
import { Argument } from "effect/cli"
import { isStrong, type TransferredFile } from "../../client/transfer.ts"
import { childPath, type FileEntry } from "../../contract/domain/Files.ts"
import { io, lstat } from "../../daemon/disk/fsio.ts"
import { writeAll } from "../../daemon/disk/safePath.ts"
import { command } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { askStream } from "../shared/musterClient.ts"
import { sizeText } from "../shared/output.ts"
import { toStandardOutput } from "./content.ts"
import { entriesOf, entryAt, whyNoContent } from "./entries.ts"
import { localName, partName, within } from "./localNames.ts"
import { type Progress, withProgress } from "./progress.ts"
import { nameOf, type Place, placeOf, readRemote, recursiveFlag, remoteArgument } from "./remotePath.ts"
import { type Batch, inBatch, type Needs, type TransferFailure } from "./transfers.ts"
import { LARGE, type Note, noteOf } from "./unfinished.ts"

const PERMISSIONS = 0o777

interface Part {
  readonly file: Buffer
  /** Permissions. */
  readonly mode: number
  /** If the download can be continued by a later command. */
  readonly note: Effect.Success<ReturnType<typeof noteOf>> | undefined
}

const identityOf = ({ birthtimeMs, dev, ino }: Stats) => `${dev}-${ino}-${birthtimeMs}`

const isOf = ({ local, size }: Note, found: Stats) =>
  found.isFile() && found.nlink === 1 && found.size <= size && identityOf(found) === local

/** Opens the bytes of an earlier command, or a new file. */
const openPart = Effect.fnUntraced(function* ({ file, mode }: Part, noted: Note | undefined) {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants
  const opened = (flags: number) =>
    Effect.acquireRelease(
      io(`open ${file}`, () => fs.open(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | flags, mode)),
      (handle) => Effect.promise(() => handle.close())
    )
  const stats = (handle: fs.FileHandle) => io(`read ${file}`, () => handle.stat())
  const earlier = noted === undefined ? undefined : yield* Effect.option(opened(0))
  if (noted !== undefined && earlier !== undefined && Option.isSome(earlier)) {
    const found = yield* stats(earlier.value)
    // The last byte is read again: there is no range after it.
    if (isOf(noted, found)) {
      const start = Math.max(0, Math.min(found.size, noted.size - 1))
      return { handle: earlier.value, identity: noted.local, start, tag: { etag: noted.remote } }
    }
  }
  yield* io(`remove ${file}`, () => fs.rm(file, { force: true }))
  const handle = yield* opened(O_CREAT | O_EXCL)
  return { handle, identity: identityOf(yield* stats(handle)), start: 0, tag: {} }
})

/** Fails unless the bytes are in the file that this command has written. */
const checkPart = Effect.fnUntraced(function* ({ file }: Part, identity: string) {
  const found = yield* lstat(file)
  if (found !== undefined && identityOf(found) === identity) return
  return yield* new CommandError({
    status: "failed",
    message: `${file} is no longer the file of this command: another one downloads to the same path.`
  })
})

/** Reads a file into its part, and puts it in place; returns whether the file changed meanwhile. */
const receive = Effect.fnUntraced(function* (
  { id, path }: Place,
  target: Buffer,
  part: Part,
  progress: Progress
) {
  const { file, note } = part
  const noted = note === undefined ? undefined : yield* note.read
  const { handle, identity, start, tag } = yield* openPart(part, noted)
  let hasChanged = false
  let isNoted = start > 0
  let at = start
  let started: TransferredFile | undefined
  const whole = noted?.size ?? 0
  if (start > 0) yield* progress.say(`${path} continues at ${sizeText(start)} of ${sizeText(whole)}`)
  progress.moved(start)
  const onStart = (file: TransferredFile) => {
    started = file
  }
  const took = Effect.fnUntraced(function* (chunk: Uint8Array) {
    if (!isNoted && note !== undefined && started?.size !== undefined && isStrong(started.etag)) {
      yield* note.write({ remote: started.etag, local: identity, size: started.size })
      isNoted = true
    }
    yield* writeAll(file.toString(), handle, chunk, at)
    at += chunk.length
    progress.moved(chunk.length)
  })
  const advice = () => `The same command continues ${path} at ${sizeText(at)}.`
  yield* askStream((muster) =>
    Stream.tapErrorTag(muster.download(id, path, { start, ...tag, onStart }), "PreconditionFailed", () =>
      Effect.sync(() => {
        hasChanged = true
      })
    )
  ).pipe(
    Stream.runForEach(took),
    Effect.andThen(Effect.suspend(() => checkPart(part, identity))),
    Effect.andThen(io(`replace ${target}`, () => fs.rename(file, target))),
    Effect.catchIf(
      () => hasChanged,
      () => Effect.sync(() => progress.moved(-at))
    ),
    Effect.mapError((error) =>
      isNoted && error._tag === "CommandError" && error.status === "unreachable"
        ? new CommandError({ status: error.status, message: `${error.message}. ${advice()}` })
        : error
    ),
    Effect.onInterrupt(() => (isNoted ? progress.say(advice()) : Effect.void)),
    Effect.onError(() =>
      isNoted ? Effect.void : Effect.promise(() => fs.rm(file, { force: true }).catch(() => {}))
    )
  )
  if (hasChanged) yield* io(`remove ${file}`, () => fs.rm(file, { force: true }))
  if (note !== undefined) yield* note.remove
  if (hasChanged && start > 0) yield* progress.say(`${path} begins again: it has changed on the server since`)
  return hasChanged
}, Effect.scoped)

const CHANGES = 3

/** Downloads a file beside its place, and puts it there once it is whole. */
const getFile = Effect.fnUntraced(function* (place: Place, target: Buffer, part: Part, progress: Progress) {
  for (let attempt = 0; attempt < CHANGES; attempt++) {
    if (!(yield* receive(place, target, part, progress))) return
  }
  return yield* new CommandError({
    status: "failed",
    message: `${place.path} changes while it is read: stop the server, or copy the file on it first.`
  })
})

/** The note of a large file. */
const noteFor = (place: Place, target: Buffer, entry: FileEntry | undefined, { say }: Progress) =>
  entry !== undefined && entry.size >= LARGE ? noteOf("get", place, target, say) : Effect.succeed(undefined)

/** Makes a folder of a download. A link in its place would lead elsewhere. */
const makeFolder = (path: Buffer) =>
  io(`make folder ${path}`, () => fs.mkdir(path)).pipe(
    Effect.catchIf(
      ({ code }) => code === "EEXIST",
      (error) =>
        Effect.flatMap(
          io(`read folder ${path}`, () => fs.lstat(path)),
          (found) => (found.isDirectory() ? Effect.void : Effect.fail(error))
        )
    )
  )

const modeOf = ({ mode }: FileEntry): number => Number.parseInt(mode, 8) & PERMISSIONS

/**
 * Downloads a folder: each page of its list, four files at a time, then its folders. An archive in one request would
 * begin again after a break, and would end at the first name that this system cannot have.
 */
const getFolder = Effect.fnUntraced(function* (
  place: Place,
  local: Buffer,
  batch: Batch
): Effect.fn.Return<void, TransferFailure, Needs> {
  const use = Effect.fnUntraced(function* (entry: FileEntry) {
    const path = childPath(place.path, entry.name)
    const why = whyNoContent(entry)
    if (why !== undefined) return yield* batch.skipped(path, why)
    const name = localName(entry.name)
    if (Result.isFailure(name)) return yield* batch.failed(path, name.failure)
    const target = within(local, name.success)
    const inner = { id: place.id, path, isFolder: entry.type === "folder" }
    if (inner.isFolder) {
      const made = yield* Effect.result(makeFolder(target))
      return yield* Result.isSuccess(made)
        ? getFolder(inner, target, batch)
        : batch.failed(path, made.failure.message)
    }
    yield* batch.tried(
      path,
      Effect.fnUntraced(function* (progress) {
        progress.begin(path)
        const note = yield* noteFor(inner, target, entry, progress)
        // A file of the folder may have the name NAME.part.
        const file = within(local, Buffer.from(`.${note?.key ?? randomUUID()}.part`))
        yield* getFile(inner, target, { file, mode: modeOf(entry), note }, progress)
      })
    )
  })
  const isFolder = ({ type }: FileEntry) => type === "folder"
  yield* Stream.runForEachArray(entriesOf(place), (page) =>
    Effect.andThen(
      Effect.forEach(
        page.filter((entry) => !isFolder(entry)),
        use,
        { concurrency: 4, discard: true }
      ),
      Effect.forEach(page.filter(isFolder), use, { discard: true })
    )
  )
})

interface Local {
  readonly folder: Buffer
  readonly name: Buffer
}

/** Returns where a download goes: under `name` into a local folder, else to the local path itself. */
export const localTarget = Effect.fnUntraced(function* (local: string, name: string) {
  const found = yield* Effect.result(io(`read ${local}`, () => fs.stat(local)))
  const isFolder = Result.isSuccess(found) && found.success.isDirectory()
  if (!isFolder && local.endsWith("/")) return yield* wrongUsage(`${local} is no folder: make it first.`)
  if (!isFolder) return { folder: Buffer.from(dirname(local)), name: Buffer.from(basename(local)) }
  const own = localName(name)
  if (Result.isSuccess(own)) return { folder: Buffer.from(local), name: own.success }
  return yield* wrongUsage(`${name} cannot be the name of a file here: ${own.failure}.`)
})

const getOne = Effect.fnUntraced(function* (place: Place, entry: FileEntry | undefined, local: Local) {
  const { folder, name } = local
  const target = within(folder, name)
  const mode = entry === undefined ? 0o666 : modeOf(entry)
  yield* withProgress(
    Effect.fnUntraced(function* (progress) {
      progress.begin(place.path, entry?.size)
      const note = yield* noteFor(place, target, entry, progress)
      const file = within(folder, partName(name, note?.key ?? randomUUID()))
      yield* getFile(place, target, { file, mode, note }, progress)
    })
  )
})

export const get = command("get", {
  description:
    "Download a file, or a folder with -r. A download resumes by itself after a broken connection. A file arrives as LOCAL.part and replaces LOCAL once it is whole; if the command ends before, the same command continues a file from 16 MiB on, unless it has changed. Links, pipes, sockets and devices are left out; names that this system cannot have are reported. A folder goes into LOCAL if that exists, and becomes LOCAL if not.",
  short: "Download files and folders",
  examples: {
    "muster files get lobby:server.properties": "Into the current folder",
    "muster files get -r lobby:/world backup/world": "A folder",
    "muster files get lobby:/world.zip - | tar -t": "To standard output"
  },
  input: {
    path: remoteArgument,
    local: Argument.String("local").pipe(
      Argument.withDescription("A file, a folder, or - for standard output; default: the current folder"),
      Argument.withDefault(".")
    ),
    recursive: recursiveFlag
  },
  *run({ local, path, recursive }) {
    const place = yield* placeOf(path)
    if (local === "-") {
      return yield* Stream.run(
        askStream((muster) => muster.download(place.id, place.path)),
        toStandardOutput
      )
    }
    const entry = yield* entryAt(place)
    const isFolder = place.path === "/" || entry?.type === "folder"
    if (!isFolder) {
      const why = entry === undefined ? undefined : whyNoContent(entry)
      if (why !== undefined) return yield* wrongUsage(`${place.path} is ${why}.`)
      return yield* getOne(place, entry, yield* localTarget(local, nameOf(place.path)))
    }
    if (!recursive) return yield* wrongUsage(`${place.path} is a folder: add -r.`)
    const name = nameOf(place.path) || (yield* readRemote(path)).server
    const to = yield* localTarget(local.replace(/(?<=.)\/+$/, ""), name)
    const target = within(to.folder, to.name)
    yield* inBatch("downloaded", (batch) =>
      Effect.andThen(
        io(`make folder ${target}`, () => fs.mkdir(target, { recursive: true })),
        getFolder(place, target, batch)
      )
    )
  }
})
