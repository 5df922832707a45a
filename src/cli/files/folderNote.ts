/** Notes about unfinished transfers of folders: where they go, and which of their files are there (spec 8.7). */
import * as fs from "node:fs/promises"
import { Clock, Effect, Option, Schema } from "effect"
import { io, lstat } from "../../daemon/disk/fsio.ts"
import { parentOf } from "./remotePath.ts"
import { LIFETIME, noteFileOf, writeNote } from "./unfinished.ts"

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
