/** `muster files put`. */
import type { Dirent, Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, resolve } from "node:path"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Option, Result, Stream } from "effect"
import { Argument } from "effect/cli"
import { childPath, nameOf, shownName } from "../../contract/domain/Files.ts"
import { forEachEntry, type IoError, io } from "../../daemon/disk/fsio.ts"
import { command, switchFlag, textArgument } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { selectorFlag } from "../shared/named.ts"
import { yesFlag } from "../shared/terminal.ts"
import { makeFolder, writeToMany } from "./changes.ts"
import { within } from "./localNames.ts"
import { noteManaged } from "./managed.ts"
import { NOTHING, withProgress } from "./progress.ts"
import { entriesOf, isFolderAt, type Place, placeOf, readPath, recursiveFlag } from "./remotePath.ts"
import { bytesOfFile, cannotRead, send, sendFile, sourceOf } from "./sendFile.ts"
import { type Batch, inBatch, type Needs, type TransferFailure } from "./transfers.ts"
import { type FolderNote, folderNoteOf } from "./unfinished.ts"
import { overwriteFlag, sendArchive } from "./unpack.ts"

const STANDARD_INPUT = "-"

const standardInput = NodeStream.fromReadable<Uint8Array, CommandError>({
  evaluate: () => process.stdin,
  onError: cannotRead("standard input")
})

const typeOf = (entry: Dirent<Buffer>): string =>
  entry.isSymbolicLink() ? "a link, which is not followed" : "a pipe, a socket or a device"

/** Returns the bytes of the files of a folder on the server, by name, if the unfinished transfer has brought some. */
const sizesIn = (place: Place, note: FolderNote) => {
  if (!note.knows(place.path)) return Effect.succeed(NONE)
  return entriesOf(place).pipe(
    Stream.runFold(
      () => new Map<string, number>(),
      (sizes, { name, size, type }) => (type === "file" ? sizes.set(name, size) : sizes)
    ),
    Effect.catchIf(
      (error) => error._tag !== "CommandError" || error.status !== "unreachable",
      () => Effect.succeed(NONE)
    )
  )
}

const NONE: ReadonlyMap<string, number> = new Map()

/** Uploads a file of a folder, unless the unfinished transfer has brought it. */
const putFile = Effect.fnUntraced(function* (
  place: Place,
  local: string | Buffer,
  { batch, note, sizes, written }: Parent,
  found: Stats
) {
  const { path } = place
  const mark = `${found.size} ${found.mtimeMs} ${found.mode}`
  const finished = (size: number | undefined) => ({ path, remote: String(size), local: mark })
  if (note.has(finished(sizes.get(nameOf(path))))) return yield* batch.there(found.size)
  yield* batch.tried(local.toString(), (progress) => {
    progress.begin(path)
    return sendFile(place, local, found, progress).pipe(
      Effect.tap(() => Effect.sync(() => written.add(path))),
      Effect.andThen(note.finish(finished(found.size)))
    )
  })
})

interface Job {
  readonly batch: Batch
  readonly note: FolderNote
  /** The paths of the files that are uploaded. */
  readonly written: Set<string>
}

interface Parent extends Job {
  /** Bytes of the files that the folder has on the server. */
  readonly sizes: ReadonlyMap<string, number>
}

/** Uploads what is in a folder: four files at a time, then its folders. A folder without files is made. */
const putFolder = Effect.fnUntraced(function* (
  local: Buffer,
  place: Place,
  job: Job
): Effect.fn.Return<void, TransferFailure, Needs> {
  const { batch } = job
  let isMade = false
  const parent = { ...job, sizes: yield* sizesIn(place, job.note) }
  const use = Effect.fnUntraced(function* (entry: Dirent<Buffer>) {
    const from = within(local, entry.name)
    const path = childPath(place.path, shownName(entry.name))
    const into = { ...place, path }
    if (entry.isDirectory()) {
      isMade = true
      return yield* putFolder(from, into, job)
    }
    if (!entry.isFile()) return yield* batch.skipped(from.toString(), typeOf(entry))
    isMade = true
    const found = yield* Effect.result(io(`read ${from}`, () => fs.lstat(from)))
    return yield* Result.isSuccess(found)
      ? putFile(into, from, parent, found.success)
      : batch.failed(from.toString(), found.failure.message)
  })
  yield* Effect.catchTag(forEachEntry(local, use, { others: 4 }), "IoError", (error) =>
    error.code === "ENOSPC" ? Effect.fail(error) : batch.failed(local.toString(), error.message)
  )
  if (isMade) return
  yield* Effect.catchIf(
    makeFolder(place.id, place.path),
    ({ status }) => status !== "unreachable",
    ({ message }) => batch.failed(local.toString(), message)
  )
})

/** Counts the files below a local folder. */
const countBelow = (local: Buffer, add: (file: Stats) => void): Effect.Effect<void, IoError> =>
  forEachEntry(local, (entry) => {
    const from = within(local, entry.name)
    if (entry.isDirectory()) return countBelow(from, add)
    return entry.isFile()
      ? Effect.map(
          io(`read ${from}`, () => fs.lstat(from)),
          add
        )
      : Effect.void
  })

/** Returns what an upload of files and folders has in all. */
const totalOf = Effect.fnUntraced(function* (
  all: ReadonlyArray<{ readonly local: string; readonly stats: Stats }>
) {
  let total = NOTHING
  const add = ({ size }: Stats) => {
    total = { files: total.files + 1, bytes: total.bytes + size }
  }
  for (const { local, stats } of all) {
    if (stats.isDirectory()) yield* countBelow(Buffer.from(local), add)
    else add(stats)
  }
  return total
})

const lookAt = (path: string) =>
  Effect.mapError(
    io(`read ${path}`, () => fs.stat(path)),
    ({ message }) => CommandError.failed(message)
  )

/** `folder/.` means what is in the folder. */
const meansContents = (local: string): boolean => /(?:^|\/)\.\/?$/.test(local)

/** Returns the path into which a local file or folder goes; `isInto`: the target is a folder that exists. */
const pathFor = (local: string, { path }: Place, isInto: boolean): string =>
  isInto && !meansContents(local) ? childPath(path, shownName(Buffer.from(basename(resolve(local))))) : path

const putAll = Effect.fnUntraced(function* (
  locals: ReadonlyArray<string>,
  target: Place,
  recursive: boolean
) {
  const note = yield* folderNoteOf("put", [
    target.id,
    target.isFolder ? `${target.path}/` : target.path,
    ...locals.map((local) => `${resolve(local)}${meansContents(local) ? "/." : ""}`)
  ])
  const isInto = target.isFolder || (!note.isOwnTarget && (yield* isFolderAt(target)))
  if (locals.length > 1 && !isInto) {
    return yield* wrongUsage(`${target.path} is no folder: write ${target.path}/ to make one.`)
  }
  const found = yield* Effect.forEach(locals, (local) =>
    Effect.map(lookAt(local), (stats) => ({ local, stats }))
  )
  const wrong = found.find(({ stats }) => !(stats.isFile() || (recursive && stats.isDirectory())))
  if (wrong !== undefined) {
    const what = wrong.stats.isDirectory() ? "a folder: add -r" : "neither a file nor a folder"
    return yield* wrongUsage(`${wrong.local} is ${what}.`)
  }
  const [only] = found
  if (only !== undefined && found.length === 1 && only.stats.isFile()) {
    const place = { ...target, path: pathFor(only.local, target, isInto) }
    yield* withProgress((progress) => {
      progress.begin(place.path, only.stats.size)
      return sendFile(place, only.local, only.stats, progress)
    })
    return yield* noteManaged(place.id, [place.path])
  }
  const written = new Set<string>()
  yield* inBatch(
    "uploaded",
    Effect.fnUntraced(function* (batch) {
      yield* note.begin(isInto, batch.say)
      yield* batch.counted(totalOf(found))
      // Several files go into the target itself.
      const sizes = yield* Effect.cached(sizesIn(target, note))
      for (const { local, stats } of found) {
        const place = { ...target, path: pathFor(local, target, isInto) }
        if (stats.isDirectory()) {
          batch.reading(local)
          yield* putFolder(Buffer.from(local), place, { batch, note, written })
        } else {
          yield* putFile(place, local, { batch, note, written, sizes: yield* sizes }, stats)
        }
      }
    })
  )
  yield* note.remove
  yield* noteManaged(target.id, written)
})

const archiveAt = Effect.fnUntraced(function* (local: string) {
  const stats = yield* lookAt(local)
  return stats.isFile() ? sourceOf(local, stats) : yield* wrongUsage(`${local} is no archive.`)
})

const putInput = Effect.fnUntraced(function* (target: Place) {
  if (target.isFolder) {
    return yield* wrongUsage("Standard input has no name: name a file, as in SERVER:/folder/file.")
  }
  yield* withProgress((progress) => {
    progress.begin(target.path)
    return send(target, { bytes: standardInput, isRepeatable: false }, progress.moved)
  })
  yield* noteManaged(target.id, [target.path])
})

/** The longest text that one request writes to many servers, in bytes (spec 10.3). */
const LONGEST_TEXT = 1024 * 1024

const textOf = Effect.fnUntraced(function* (local: string) {
  const bytes = local === STANDARD_INPUT ? standardInput : bytesOfFile(local, 0, LONGEST_TEXT + 1)
  const read = yield* bytes.pipe(
    Stream.limitBytes(LONGEST_TEXT, () =>
      Stream.fail(
        wrongUsage(
          `${local} has more than 1 MiB: put it on one server, and copy it from there with \`muster files cp --selector\`.`
        )
      )
    ),
    Stream.mkUint8Array
  )
  const text = Buffer.from(read).toString()
  if (Buffer.from(text).equals(read)) return text
  return yield* wrongUsage(
    `${local} is no text in UTF-8: put it on one server, and copy it from there with \`muster files cp --selector\`.`
  )
})

export const put = command("put", {
  description:
    "Upload files, or folders with -r, with their permissions. The old file stays until the new one is complete; missing folders are made. After a break of the connection, a file from 16 MiB on continues, a smaller one is sent again; if the command ends before its last byte, the same command continues a large file within 24 h, and leaves the finished files of a folder. A path that ends with / or is a folder gets the files below it. Links, pipes, sockets and devices are left out and reported. With --selector, a text of at most 1 MiB goes to many servers.",
  short: "Upload files and folders",
  examples: {
    "muster files put server.properties lobby:": "A file",
    "muster files put -r plugins/. lobby:/plugins": "What is in a folder",
    "pg_dump stats | muster files put - lobby:/dump.sql": "Standard input",
    "muster files put --unpack world.zip lobby:/world": "What is in an archive",
    "muster files put --selector label=game=lobby motd.txt /motd.txt": "One file to many servers"
  },
  input: {
    file: textArgument(
      "file",
      "Local files and folders, or - for standard input; then SERVER:PATH, or PATH with --selector"
    ).pipe(Argument.atLeast(2)),
    overwrite: overwriteFlag,
    recursive: recursiveFlag,
    selector: selectorFlag,
    unpack: switchFlag("unpack", "Unpack the archive into the folder while it is sent"),
    yes: yesFlag
  },
  *run({ file, overwrite, recursive, selector, unpack, yes }) {
    const target = file.at(-1)
    const locals = file.slice(0, -1)
    const [first] = locals
    if (target === undefined || first === undefined) return yield* wrongUsage("Name LOCAL and SERVER:PATH.")
    if (Option.isSome(overwrite) && !unpack) return yield* wrongUsage("--overwrite is for --unpack.")
    if (unpack) {
      if (locals.length > 1 || selector.length > 0)
        return yield* wrongUsage("--unpack takes one archive: ARCHIVE SERVER:FOLDER.")
      const source = first === STANDARD_INPUT ? { bytes: standardInput } : yield* archiveAt(first)
      return yield* sendArchive(yield* placeOf(target), source, overwrite)
    }
    if (selector.length > 0) {
      if (locals.length > 1) return yield* wrongUsage("--selector takes one file: FILE PATH.")
      const { isFolder, path } = yield* readPath(target)
      if (isFolder) return yield* wrongUsage(`${path} is a folder: name the file.`)
      return yield* writeToMany(selector, path, { content: yield* textOf(first) }, yes)
    }
    const place = yield* placeOf(target)
    if (first !== STANDARD_INPUT) return yield* putAll(locals, place, recursive)
    if (locals.length > 1) return yield* wrongUsage("Standard input goes alone: - SERVER:PATH.")
    yield* putInput(place)
  }
})
