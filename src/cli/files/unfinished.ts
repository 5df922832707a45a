/** Notes about unfinished transfers, with which the same command continues them later. They have no secret. */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { join, resolve } from "node:path"
import { Clock, Effect, Option, Schema } from "effect"
import { parentOf } from "../../contract/domain/Files.ts"
import { io, listFolder, lstat } from "../../daemon/disk/fsio.ts"
import { CommandTarget, configFolder } from "../shared/target.ts"

/** Bytes from which on a transfer can be continued by another command. */
export const LARGE = 16 * 1024 * 1024

/** Notes of one user; the oldest make room. */
const MOST = 256
/** Milliseconds for which a note stays: an upload expires after a day, but a download does not. */
export const LIFETIME = 7 * 24 * 3600 * 1000

const Note = Schema.Struct({
  /** The id of the upload, or the tag of the file on the server. */
  remote: Schema.String.check(Schema.isMaxLength(200)),
  /** Identifies the local file. */
  local: Schema.String.check(Schema.isMaxLength(100)),
  /** Bytes of the whole file. */
  size: Schema.Int
})
export type Note = typeof Note.Type

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Note))

/** Removes notes that are old, and the oldest if there are too many. */
const prune = Effect.fnUntraced(function* (folder: string) {
  const now = yield* Clock.currentTimeMillis
  const notes: Array<{ readonly file: string; readonly at: number }> = []
  for (const name of yield* listFolder(folder)) {
    const file = join(folder, name)
    notes.push({ file, at: (yield* lstat(file))?.mtimeMs ?? 0 })
  }
  const newest = notes.toSorted((one, other) => other.at - one.at)
  for (const [index, { at, file }] of newest.entries()) {
    if (index >= MOST - 1 || now - at > LIFETIME)
      yield* io(`remove ${file}`, () => fs.rm(file, { force: true }))
  }
})

/** Returns where the note about a transfer is. @param parts distinguish the transfer from all others of this service */
export const noteFileOf = Effect.fnUntraced(function* (parts: ReadonlyArray<string>) {
  const { url } = yield* CommandTarget
  const folder = join(yield* configFolder, "transfers")
  const key = createHash("sha256")
    .update(JSON.stringify([url, ...parts]))
    .digest("hex")
    .slice(0, 32)
  return { folder, file: join(folder, key), key }
})

/** Writes a note, and makes room for it. */
export const writeNote = Effect.fnUntraced(function* (
  { file, folder }: { readonly file: string; readonly folder: string },
  text: string
) {
  const draft = `${file}.${process.pid}`
  yield* io(`make folder ${folder}`, () => fs.mkdir(folder, { recursive: true, mode: 0o700 }))
  yield* prune(folder)
  yield* io(`write ${draft}`, () => fs.writeFile(draft, text, { mode: 0o600 }))
  yield* io(`write ${file}`, () => fs.rename(draft, file))
})

/** The note about a transfer between a place and a local file. @param say prints why there can be no note */
export const noteOf = Effect.fnUntraced(function* (
  direction: "get" | "put",
  { id, path }: { readonly id: string; readonly path: string },
  local: string | Buffer,
  say: (text: string) => Effect.Effect<void>
) {
  const noted = yield* noteFileOf([direction, id, path, resolve(local.toString("latin1"))])
  const { file, key } = noted
  return {
    /** A name for the file that no other transfer has. */
    key,
    /** Returns the note, unless there is none that can be read. */
    read: Effect.gen(function* () {
      const text = yield* io(`read ${file}`, () => fs.readFile(file, "utf8"))
      return yield* decode(text)
    }).pipe(Effect.orElseSucceed(() => undefined)),
    write: (note: Note) =>
      Effect.catch(writeNote(noted, JSON.stringify(note)), ({ message }) =>
        say(`${path}: a later command cannot continue: ${message}`)
      ),
    // A note that outlives its transfer is harmless.
    remove: Effect.ignore(io(`remove ${file}`, () => fs.unlink(file)))
  }
})

/** The most bytes of a note; a larger one is ignored. */
const LONGEST = 256 * 1024 * 1024

const PATH = 8192
const MARK = 100

const Head = Schema.Struct({
  /** Whether the target was a folder before the transfer, so that the source went into it. */
  isInto: Schema.Boolean
})

const Finished = Schema.Struct({
  /** On the server. */
  path: Schema.String.check(Schema.isMaxLength(PATH)),
  /** The marks of the contents on the server and of the local file. */
  remote: Schema.String.check(Schema.isMaxLength(MARK)),
  local: Schema.String.check(Schema.isMaxLength(MARK))
})
type Finished = typeof Finished.Type

const decodeHead = Schema.decodeUnknownEffect(Schema.fromJsonString(Head))
const decodeFinished = Schema.decodeUnknownOption(Schema.fromJsonString(Finished))

const read = Effect.fnUntraced(function* (file: string) {
  const found = yield* lstat(file)
  const now = yield* Clock.currentTimeMillis
  if (found === undefined || found.size > LONGEST || now - found.mtimeMs > LIFETIME) return undefined
  const [head = "", ...lines] = (yield* io(`read ${file}`, () => fs.readFile(file, "utf8"))).split("\n")
  const { isInto } = yield* decodeHead(head)
  // The last line of a command that was killed may be cut: its file is sent again.
  const finished = lines.flatMap((line) => Option.toArray(decodeFinished(line)))
  return { isInto, finished: new Map(finished.map((one) => [one.path, one])) }
})

/** The note about a transfer of folders. @param parts distinguish the command from all others */
export const folderNoteOf = Effect.fnUntraced(function* (
  direction: "get" | "put",
  parts: ReadonlyArray<string>
) {
  const place = yield* noteFileOf([`${direction} -r`, ...parts])
  const earlier = yield* Effect.orElseSucceed(read(place.file), () => undefined)
  const finished = earlier?.finished ?? new Map<string, Finished>()
  const folders = new Set([...finished.keys()].map(parentOf))
  const append = (text: string) =>
    Effect.ignore(io(`write ${place.file}`, () => fs.appendFile(place.file, text, { mode: 0o600 })))
  return {
    /** Whether the unfinished transfer has made the folder of the target. */
    isOwnTarget: earlier?.isInto === false,
    /** Notes the transfer before it makes its target. @param say prints why there can be no note */
    begin: (isInto: boolean, say: (text: string) => Effect.Effect<void>) =>
      earlier?.isInto === isInto
        ? append("\n")
        : Effect.catch(
            writeNote(place, `${JSON.stringify({ isInto } satisfies typeof Head.Type)}\n`),
            (error) => say(`a later command cannot continue: ${error.message}`)
          ),
    /** Whether files of this folder are finished. */
    knows: (folder: string) => folders.has(folder),
    /** Whether the unfinished transfer has brought a file, and both sides are as they were then. */
    has: ({ local, path, remote }: Finished) => {
      const noted = finished.get(path)
      return noted !== undefined && noted.local === local && noted.remote === remote
    },
    finish: (file: Finished) =>
      Effect.suspend(() => {
        // A command may send another file to the same path.
        finished.delete(file.path)
        return append(`${JSON.stringify(file)}\n`)
      }),
    // The same command begins again after this.
    remove: Effect.ignore(io(`remove ${place.file}`, () => fs.rm(place.file, { force: true })))
  }
})

export type FolderNote = Effect.Success<ReturnType<typeof folderNoteOf>>
