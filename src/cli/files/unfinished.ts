/** Notes about unfinished transfers, with which the same command continues them later. They have no secret. */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { join, resolve } from "node:path"
import { Clock, Effect, Schema } from "effect"
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
