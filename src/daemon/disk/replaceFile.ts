/** Files that are replaced as a whole and are on disk when the write returns. */
import * as sync from "node:fs"
import * as fs from "node:fs/promises"
import { dirname } from "node:path"
import { promisify } from "node:util"
import { Effect, Option, Schema } from "effect"
import { flushed, type IoError, io, ioSync, orMissing, readText, syncFolder } from "./fsio.ts"
import { isNoRoom } from "./remedy.ts"

const openLater = promisify(sync.open)

/** Opens a file, writes it at once and waits until its data are on disk. */
const writeSynced = (what: string, path: string, flags: string | number, write: (fd: number) => void) =>
  Effect.acquireUseRelease(
    io(what, () => openLater(path, flags, 0o600)),
    (fd) =>
      Effect.andThen(
        ioSync(what, () => write(fd)),
        flushed(what, fd, sync.fdatasync)
      ),
    (fd) => Effect.sync(() => sync.closeSync(fd))
  )

/** Replaces a file atomically, also for a crash. A failure leaves no temporary file. */
const replace = <A>(path: string, text: string, put: (aside: string) => A): Effect.Effect<A, IoError> => {
  const aside = `${path}.tmp`
  return writeSynced(`write ${path}`, aside, "w", (fd) => sync.writeFileSync(fd, text)).pipe(
    Effect.andThen(ioSync(`rename ${aside}`, () => put(aside))),
    Effect.onError(() => Effect.ignore(ioSync(`remove ${aside}`, () => sync.unlinkSync(aside))))
  )
}

export const writeAtomic = (path: string, text: string): Effect.Effect<void, IoError> =>
  replace(path, text, (aside) => sync.renameSync(aside, path))

/** Writes a file of a folder that is not in place yet: a reader, also after a crash, sees all of it or no folder. */
export const writeNew = (path: string, text: string): Effect.Effect<void, IoError> =>
  writeSynced(`write ${path}`, path, "wx", (fd) => sync.writeFileSync(fd, text))

/** Makes the reader of JSON files of this service. A file that is missing, or not as the schema says, is nothing. */
export const recordReader = <A>(schema: Schema.ConstraintDecoder<A>) => {
  const decode = Schema.decodeUnknownOption(Schema.fromJsonString(schema))
  return (path: string) =>
    Effect.map(readText(path).pipe(orMissing("")), (text) => Option.getOrUndefined(decode(text)))
}

const BLOCK = 4096
const blocksOf = (bytes: number): number => Math.ceil(bytes / BLOCK)

const sizeOf = (path: string): number => sync.statSync(path, { throwIfNoEntry: false })?.size ?? 0

/** Gives a file another name; false: it has it after a crash, there is no file, or the disk has no hard links. */
const link = (path: string, to: string): boolean => {
  try {
    sync.linkSync(path, to)
    return true
  } catch {
    return false
  }
}

/** Writes a text into the spare of a file, and exchanges both. */
const useSpare = Effect.fnUntraced(function* (path: string, spare: string, bytes: Buffer) {
  const former = `${path}.former`
  yield* ioSync(`replace ${path}`, () => {
    // After a crash between the renames below, or between those of a write with room.
    if (!sync.existsSync(spare) && sync.existsSync(former)) sync.renameSync(former, spare)
    else if (sync.statSync(spare).ino === sync.statSync(path).ino) sync.unlinkSync(spare)
  })
  // The spare may be the file on disk, until the disk has the names of the last write.
  yield* syncFolder(dirname(path))
  yield* writeSynced(`write ${path}`, spare, sync.constants.O_RDWR, (fd) => {
    sync.writeFileSync(fd, bytes)
    sync.ftruncateSync(fd, bytes.length)
  })
  return yield* ioSync(`replace ${path}`, () => {
    const isKept = link(path, former) || sync.existsSync(former)
    sync.renameSync(spare, path)
    if (isKept) sync.renameSync(former, spare)
    return sizeOf(spare)
  })
})

/** Replaces a spare that is too small. It may be the file on disk, see {@link useSpare}: so it is not written to. */
const makeSpare = (spare: string, bytes: number) =>
  io(`write ${spare}`, () => fs.rm(spare, { force: true })).pipe(
    Effect.andThen(io(`write ${spare}`, () => fs.writeFile(spare, Buffer.alloc(bytes), { mode: 0o600 }))),
    Effect.ignore
  )

/** Replaces a file as {@link writeAtomic}, and keeps a spare beside it, into which a full disk writes. */
export const writeSpared = (path: string, text: string): Effect.Effect<void, IoError> => {
  const spare = `${path}.spare`
  const bytes = Buffer.from(text)
  const blocks = blocksOf(bytes.length)
  return replace(path, text, (aside) => {
    if (!sync.existsSync(spare)) link(path, spare)
    sync.renameSync(aside, path)
    return sizeOf(spare)
  }).pipe(
    Effect.catchIf(isNoRoom, (error) => Effect.mapError(useSpare(path, spare, bytes), () => error)),
    Effect.flatMap((size) => (blocksOf(size) >= blocks ? Effect.void : makeSpare(spare, blocks * BLOCK)))
  )
}
