/** Sends files of this system; a large one continues where an earlier command ended. */
import { createReadStream, type Stats } from "node:fs"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Stream } from "effect"
import type { BegunUpload } from "../../client/index.ts"
import { TUS_VERSION } from "../../contract/api/UploadsGroup.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import { CommandError, whyNoFile } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { sizeText } from "../shared/output.ts"
import type { Progress } from "./progress.ts"
import type { Place } from "./remotePath.ts"
import { LARGE, noteOf } from "./unfinished.ts"

/** Bytes that are read from a file at a time. */
const CHUNK = 256 * 1024

export const cannotRead = (path: string | Buffer) => (cause: unknown) =>
  CommandError.failed(`cannot read ${path}: ${whyNoFile(cause)}`)

const tooShort = (path: string | Buffer) => CommandError.failed(`${path} became shorter while it was read.`)

/** Reads the bytes of a file from `start`, inclusive, to `end`, exclusive. */
export const bytesOfFile = (
  path: string | Buffer,
  start: number,
  end: number
): Stream.Stream<Uint8Array, CommandError> => {
  if (start >= end) return Stream.empty
  return NodeStream.fromReadable<Uint8Array, CommandError>({
    evaluate: () => createReadStream(path, { start, end: end - 1, highWaterMark: CHUNK }),
    onError: cannotRead(path)
  })
}

interface Source {
  readonly bytes: Stream.Stream<Uint8Array, CommandError>
  readonly size?: number
  readonly mode?: string
  /** Whether the bytes can be read again, after a break. */
  readonly isRepeatable: boolean
}

const permissionsOf = (mode: number): string => (mode & 0o777).toString(8).padStart(4, "0")

/** Sends the bytes of one file, from their beginning after each break. */
export const send = (
  { id, path }: Place,
  { bytes, isRepeatable, mode, size }: Source,
  moved: (bytes: number) => void
) =>
  ask((muster) => {
    let before = 0
    let runs = 0
    const once = Stream.suspend(() => (++runs > 1 && !isRepeatable ? Stream.fail(cannotRepeat(path)) : bytes))
    return muster.upload(id, path, once, {
      ...(mode === undefined ? {} : { mode }),
      ...(size === undefined ? {} : { size }),
      onProgress: ({ done }) => {
        moved(done - before)
        before = done
      }
    })
  })

const cannotRepeat = (path: string) =>
  CommandError.unreachable(
    `the connection broke, and standard input cannot be read again: ${path} is as it was before.`
  )

type Found = Pick<Stats, "mode" | "mtimeMs" | "size">

/** Sends the bytes that a file had when it was looked at: a log may grow meanwhile. */
export const sourceOf = (path: string | Buffer, { mode, size }: Found): Source => ({
  bytes: bytesOfFile(path, 0, size),
  size,
  mode: permissionsOf(mode),
  isRepeatable: true
})

const missingBytes = (path: string | Buffer, start: number, end: number) => {
  let left = end - start
  return bytesOfFile(path, start, end).pipe(
    Stream.tap(({ length }) =>
      Effect.sync(() => {
        left -= length
      })
    ),
    Stream.concat(Stream.suspend(() => (left > 0 ? Stream.fail(tooShort(path)) : Stream.empty)))
  )
}

/** Sends a large file, and continues where an earlier command with the same file ended. */
const sendLarge = Effect.fnUntraced(function* (
  place: Place,
  local: string | Buffer,
  { mode, mtimeMs, size }: Found,
  { had, moved, say }: Progress
) {
  const { id: server, path } = place
  const shown = legible(path)
  const note = yield* noteOf("put", place, local, say)
  const own = { local: String(mtimeMs), size }
  const noted = yield* note.read
  const isSame = noted?.local === own.local && noted.size === size
  if (noted !== undefined && !isSame) {
    const of = { params: { server, upload: noted.remote }, headers: { "tus-resumable": TUS_VERSION } }
    yield* ask((muster) => Effect.ignore(muster.uploads.end(of)))
    yield* say(`${shown} begins again: ${local} has changed since`)
  }
  let arrived = 0
  let hasBegun = false
  const onBegin = Effect.fnUntraced(function* ({ id, offset }: BegunUpload) {
    hasBegun = true
    if (offset > 0) yield* say(`${shown} continues at ${sizeText(offset)} of ${sizeText(size)}`)
    else if (isSame && id !== noted.remote) yield* say(`${shown} begins again: the earlier upload is gone`)
    if (id !== noted?.remote) yield* note.write({ remote: id, ...own })
  })
  const advice = () => `The same command continues ${shown} at about ${sizeText(arrived)}.`
  const contents = { size, bytes: (start: number, end: number) => missingBytes(local, start, end) }
  yield* ask((muster) =>
    muster.uploadResumable(server, path, contents, {
      mode: permissionsOf(mode),
      ...(isSame ? { upload: noted.remote } : {}),
      onBegin,
      onProgress: ({ done }) => {
        const count = hasBegun ? moved : had
        count(done - arrived)
        arrived = done
      }
    })
  ).pipe(
    Effect.mapError((error) =>
      error.status === "unreachable" && arrived > 0
        ? CommandError.unreachable(`${error.message}. ${advice()}`)
        : error
    ),
    Effect.onInterrupt(() => say(advice()))
  )
  yield* note.remove
})

/** Sends a file of this system. */
export const sendFile = (place: Place, local: string | Buffer, found: Found, progress: Progress) =>
  found.size < LARGE
    ? Effect.asVoid(send(place, sourceOf(local, found), progress.moved))
    : sendLarge(place, local, found, progress)
