/** Receives files of a server; a large one continues where an earlier command ended. */
import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Option, Stream } from "effect"
import type { MusterClient } from "../../client/MusterClient.ts"
import {
  type DownloadOptions,
  isStrong,
  type TransferError,
  type TransferredFile
} from "../../client/transfer.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import { type IoError, io, lstat, openFile } from "../../daemon/disk/fsio.ts"
import { writeAll } from "../../daemon/disk/safePath.ts"
import { CommandError } from "../shared/failures.ts"
import { askStream } from "../shared/musterClient.ts"
import { sizeText } from "../shared/output.ts"
import type { Progress } from "./progress.ts"
import type { Note, noteOf } from "./unfinished.ts"

/** The origin of a download. */
export interface Source {
  /** Its name in messages. */
  readonly path: string
  readonly read: (
    muster: MusterClient["Service"],
    options: DownloadOptions
  ) => Stream.Stream<Uint8Array, TransferError>
}

interface Part {
  readonly file: Buffer
  /** Permissions. */
  readonly mode: number
  /** Unset if no later command can continue the download. */
  readonly note: Effect.Success<ReturnType<typeof noteOf>> | undefined
  /** Compares the received file with its source. After a failure, the file is removed. */
  readonly check?: (file: Buffer) => Effect.Effect<void, CommandError | IoError>
}

const identityOf = ({ birthtimeMs, dev, ino }: Stats) => `${dev}-${ino}-${birthtimeMs}`

const isOf = ({ local, size }: Note, found: Stats) =>
  found.isFile() && found.nlink === 1 && found.size <= size && identityOf(found) === local

/** Opens the bytes of an earlier command, or a new file. */
const openPart = Effect.fnUntraced(function* ({ file, mode }: Part, noted: Note | undefined) {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants
  const opened = (flags: number) => openFile(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | flags, mode)
  const stats = (handle: fs.FileHandle) => io(`read ${file}`, () => handle.stat())
  const earlier = noted === undefined ? Option.none() : yield* Effect.option(opened(0))
  if (noted !== undefined && Option.isSome(earlier)) {
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
  return yield* CommandError.failed(
    `${file} is no longer the file of this command: another one downloads to the same path.`
  )
})

/** Reads a file into its part, and puts it in place; returns whether the file changed meanwhile. */
const receive = Effect.fnUntraced(function* (
  { path, read }: Source,
  target: Buffer,
  part: Part,
  progress: Progress
) {
  const { check, file, note } = part
  const noted = note === undefined ? undefined : yield* note.read
  const { handle, identity, start, tag } = yield* openPart(part, noted)
  let hasChanged = false
  let isNoted = start > 0
  let at = start
  let started: TransferredFile | undefined
  const whole = noted?.size ?? 0
  if (start > 0) yield* progress.say(`${legible(path)} continues at ${sizeText(start)} of ${sizeText(whole)}`)
  progress.had(start)
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
    Stream.tapErrorTag(read(muster, { start, ...tag, onStart }), "PreconditionFailed", () =>
      Effect.sync(() => {
        hasChanged = true
      })
    )
  ).pipe(
    Stream.runForEach(took),
    Effect.andThen(Effect.suspend(() => checkPart(part, identity))),
    Effect.andThen(
      Effect.suspend(() => check?.(file) ?? Effect.void).pipe(
        Effect.onError(() =>
          Effect.suspend(() => {
            isNoted = false
            return note?.remove ?? Effect.void
          })
        )
      )
    ),
    Effect.andThen(io(`replace ${target}`, () => fs.rename(file, target))),
    Effect.catchIf(
      () => hasChanged,
      () =>
        Effect.sync(() => {
          progress.had(-start)
          progress.moved(start - at)
        })
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
  if (hasChanged && start > 0)
    yield* progress.say(`${legible(path)} begins again: it has changed on the server since`)
  return hasChanged
}, Effect.scoped)

const CHANGES = 3

/** Downloads a file beside its place, and puts it there once it is whole. */
export const getFile = Effect.fnUntraced(function* (
  source: Source,
  target: Buffer,
  part: Part,
  progress: Progress
) {
  for (let attempt = 0; attempt < CHANGES; attempt++) {
    if (!(yield* receive(source, target, part, progress))) return
  }
  return yield* CommandError.failed(
    `${source.path} changes while it is read: stop the server, or copy the file on it first.`
  )
})
