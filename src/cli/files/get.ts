/** `muster files get`. */
import { randomUUID } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname } from "node:path"
import { Effect, Result, Stream } from "effect"
import { Argument } from "effect/cli"
import { childPath, type FileEntry } from "../../contract/domain/Files.ts"
import { io } from "../../daemon/disk/fsio.ts"
import { command } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { askStream } from "../shared/musterClient.ts"
import { toStandardOutput } from "./content.ts"
import { entriesOf, entryAt, whyNoContent } from "./entries.ts"
import { localName, partName, within } from "./localNames.ts"
import { type Progress, withProgress } from "./progress.ts"
import { nameOf, type Place, placeOf, readRemote, recursiveFlag, remoteArgument } from "./remotePath.ts"
import { type Batch, inBatch, type Needs, type TransferFailure } from "./transfers.ts"

const PERMISSIONS = 0o777

/** Reads all bytes of a file into a new one; returns whether the file changed meanwhile. */
const receive = Effect.fnUntraced(function* (
  { id, path }: Place,
  part: Buffer,
  mode: number,
  progress: Progress
) {
  let hasChanged = false
  let done = 0
  yield* io(`remove ${part}`, () => fs.rm(part, { force: true }))
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants
  const handle = yield* Effect.acquireRelease(
    io(`create ${part}`, () => fs.open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode)),
    (handle) => Effect.promise(() => handle.close())
  )
  yield* askStream((muster) =>
    Stream.tapErrorTag(muster.download(id, path), "PreconditionFailed", () =>
      Effect.sync(() => {
        hasChanged = true
      })
    )
  ).pipe(
    Stream.runForEach((chunk) =>
      Effect.map(
        io(`write ${part}`, () => handle.appendFile(chunk)),
        () => {
          done += chunk.length
          progress.moved(chunk.length)
        }
      )
    ),
    Effect.catchIf(
      () => hasChanged,
      () => Effect.sync(() => progress.moved(-done))
    )
  )
  return hasChanged
}, Effect.scoped)

const CHANGES = 3

/** Downloads a file beside its place, and puts it there once it is whole. */
const getFile = Effect.fnUntraced(function* (
  place: Place,
  target: Buffer,
  part: Buffer,
  mode: number,
  progress: Progress
) {
  const received = Effect.gen(function* () {
    for (let attempt = 0; attempt < CHANGES; attempt++) {
      if (!(yield* receive(place, part, mode, progress))) return
    }
    return yield* new CommandError({
      status: "failed",
      message: `${place.path} changes while it is read: stop the server, or copy the file on it first.`
    })
  })
  yield* received.pipe(
    Effect.andThen(io(`replace ${target}`, () => fs.rename(part, target))),
    Effect.onError(() => Effect.promise(() => fs.rm(part, { force: true }).catch(() => {})))
  )
})

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
    const part = within(local, Buffer.from(`.${randomUUID()}.part`))
    yield* batch.tried(path, (progress) => {
      progress.begin(path)
      return getFile(inner, target, part, modeOf(entry), progress)
    })
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
  const part = within(folder, partName(name, randomUUID()))
  const mode = entry === undefined ? 0o666 : modeOf(entry)
  yield* withProgress((progress) => {
    progress.begin(place.path, entry?.size)
    return getFile(place, within(folder, name), part, mode, progress)
  })
})

export const get = command("get", {
  description:
    "Download a file, or a folder with -r. A download resumes by itself after a broken connection. A file arrives as LOCAL.part and replaces LOCAL once it is whole. Links, pipes, sockets and devices are left out; names that this system cannot have are reported. A folder goes into LOCAL if that exists, and becomes LOCAL if not.",
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
