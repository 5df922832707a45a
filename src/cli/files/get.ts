/** `muster files get`. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import { basename, dirname, resolve } from "node:path"
import { Effect, Result, Stream } from "effect"
import { Argument } from "effect/cli"
import { childPath, type FileEntry, nameOf } from "../../contract/domain/Files.ts"
import { io, lstat } from "../../daemon/disk/fsio.ts"
import { command, textArgument } from "../shared/command.ts"
import { wrongUsage } from "../shared/failures.ts"
import { askStream } from "../shared/musterClient.ts"
import { toStandardOutput } from "./content.ts"
import { localName, partName, within } from "./localNames.ts"
import { NOTHING, type Progress, withProgress } from "./progress.ts"
import { getFile, type Source } from "./receiveFile.ts"
import {
  entriesBelow,
  entriesOf,
  entryAt,
  type Place,
  placeOf,
  readRemote,
  recursiveFlag,
  remoteArgument,
  whyNoContent
} from "./remotePath.ts"
import { type Batch, inBatch, type Needs, type TransferFailure } from "./transfers.ts"
import { type FolderNote, folderNoteOf, LARGE, noteOf } from "./unfinished.ts"

const PERMISSIONS = 0o777

/** The note of a large file. */
const noteFor = (place: Place, target: Buffer, entry: FileEntry | undefined, { say }: Progress) =>
  entry !== undefined && entry.size >= LARGE ? noteOf("get", place, target, say) : Effect.succeed(undefined)

const sourceOf = ({ id, path }: Place): Source => ({
  path,
  read: (muster, options) => muster.download(id, path, options)
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

/** Returns what a download of a folder has in all. */
const totalBelow = (place: Place) =>
  Stream.runFold(
    entriesBelow(place),
    () => NOTHING,
    (all, entry) => (entry.type === "file" ? { files: all.files + 1, bytes: all.bytes + entry.size } : all)
  )

/** Identifies the contents of a local file; empty if none is there. */
const markOf = (target: Buffer) =>
  Effect.map(lstat(target), (found) => (found?.isFile() ? `${found.size} ${found.mtimeMs}` : ""))

/**
 * Downloads a folder: each page of its list, four files at a time, then its folders. An archive in one request would
 * begin again after a break, and would end at the first name that this system cannot have.
 */
const getFolder = Effect.fnUntraced(function* (
  place: Place,
  local: Buffer,
  batch: Batch,
  folder: FolderNote
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
        ? getFolder(inner, target, batch, folder)
        : batch.failed(path, made.failure.message)
    }
    const remote = `${entry.size} ${entry.modified_at}`
    if (folder.has({ path, remote, local: yield* markOf(target) })) return yield* batch.there(entry.size)
    yield* batch.tried(
      path,
      Effect.fnUntraced(function* (progress) {
        progress.begin(path)
        const noted = yield* noteOf("get", inner, target, progress.say)
        const note = entry.size >= LARGE ? noted : undefined
        // A file of the folder may have the name NAME.part.
        const file = within(local, Buffer.from(`.${noted.key}.part`))
        yield* getFile(sourceOf(inner), target, { file, mode: modeOf(entry), note }, progress)
        yield* folder.finish({ path, remote, local: yield* markOf(target) })
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

const ownTarget = (local: string): Local => ({
  folder: Buffer.from(dirname(local)),
  name: Buffer.from(basename(local))
})

/** Returns where a download goes: under `name` into a local folder, else to the local path itself. */
export const localTarget = Effect.fnUntraced(function* (local: string, name: string) {
  const found = yield* Effect.result(io(`read ${local}`, () => fs.stat(local)))
  const isFolder = Result.isSuccess(found) && found.success.isDirectory()
  if (!isFolder && local.endsWith("/")) return yield* wrongUsage(`${local} is no folder: make it first.`)
  if (!isFolder) return ownTarget(local)
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
      yield* getFile(sourceOf(place), target, { file, mode, note }, progress)
    })
  )
})

export const get = command("get", {
  description:
    "Download a file, or a folder with -r. A download resumes by itself after a broken connection. A file arrives as LOCAL.part and replaces LOCAL once it is whole; if the command ends before, the same command continues a file from 16 MiB on, unless it has changed, and leaves the finished files of a folder. Links, pipes, sockets and devices are left out; names that this system cannot have are reported. A folder goes into LOCAL if that exists, and becomes LOCAL if not.",
  short: "Download files and folders",
  examples: {
    "muster files get lobby:server.properties": "Into the current folder",
    "muster files get -r lobby:/world backup/world": "A folder",
    "muster files get lobby:/world.zip - | tar -t": "To standard output"
  },
  input: {
    path: remoteArgument,
    local: textArgument(
      "local",
      "A file, a folder, or - for standard output; default: the current folder"
    ).pipe(Argument.withDefault(".")),
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
    const named = local.replace(/(?<=.)\/+$/, "")
    const note = yield* folderNoteOf("get", [place.id, place.path, resolve(named)])
    const to = note.isOwnTarget ? ownTarget(named) : yield* localTarget(named, name)
    const target = within(to.folder, to.name)
    yield* inBatch(
      "downloaded",
      Effect.fnUntraced(function* (batch) {
        batch.reading(place.path)
        yield* batch.counted(totalBelow(place))
        yield* note.begin(resolve(named) !== resolve(target.toString()), batch.say)
        yield* io(`make folder ${target}`, () => fs.mkdir(target, { recursive: true }))
        yield* getFolder(place, target, batch, note)
      })
    )
    yield* note.remove
  }
})
