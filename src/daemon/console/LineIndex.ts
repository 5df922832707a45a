import { Effect } from "effect"
import { pause } from "../../shared/work/slices.ts"
import { type IoError, io, lstat, openFile, orMissing } from "../disk/fsio.ts"
import { CHUNK, fileId } from "./consoleFiles.ts"
import { decodeLine, type LinePart, lineReader, piecesOf } from "./lines.ts"

/** Lines between two remembered offsets. */
const STRIDE = 256

export interface StoredLine {
  readonly at: number
  readonly text: string
}

/**
 * Counts the lines of a growing file and reads a range of them, in bounded memory. If the name leads to another file,
 * the count starts again.
 */
export interface LineIndex {
  /** The number of lines, an unterminated last line included. */
  readonly total: Effect.Effect<number, IoError>
  /** Returns the lines from `from` (0 is the first) up to, but without, `to`, as of the last `total`. */
  read(from: number, to: number): Effect.Effect<ReadonlyArray<StoredLine>, IoError>
  /** Forgets the file after it was emptied. */
  readonly reset: Effect.Effect<void>
}

/**
 * Reads a file from `offset` and calls `onLine` with each finished line, until `onLine` returns false. Returns the
 * unfinished line at the end.
 */
const scan = Effect.fnUntraced(function* (path: string, offset: number, onLine: (line: LinePart) => boolean) {
  const file = yield* openFile(path, "r")
  const reader = lineReader(offset)
  let wantsMore = true
  for (let at = offset; wantsMore; ) {
    const chunk = Buffer.allocUnsafe(CHUNK)
    const { bytesRead } = yield* io(`read ${path}`, () => file.read(chunk, 0, CHUNK, at))
    if (bytesRead === 0) break
    at += bytesRead
    for (const piece of piecesOf(chunk.subarray(0, bytesRead))) {
      reader.read(piece, (line) => {
        wantsMore &&= onLine(line)
      })
      yield* pause
    }
  }
  return reader.open()
}, Effect.scoped)

const nothing = lineReader().open()

export const makeLineIndex = (path: string): LineIndex => {
  let checkpoints: Array<number> = [0]
  let lines = 0
  let begin = 0
  let unfinished = false
  let known: string | undefined

  const forget = () => {
    checkpoints = [0]
    lines = 0
    begin = 0
    unfinished = false
  }

  const total = Effect.gen(function* () {
    const stats = yield* lstat(path)
    if (fileId(stats) !== known || (stats?.size ?? 0) < begin) forget()
    known = fileId(stats)
    const end = yield* scan(path, begin, ({ at }) => {
      if (lines % STRIDE === 0) checkpoints[lines / STRIDE] = at
      lines++
      return true
    }).pipe(orMissing(nothing))
    begin = end.at
    unfinished = end.bytes.length > 0
    if (lines % STRIDE === 0) checkpoints[lines / STRIDE] = begin
    return unfinished ? lines + 1 : lines
  })

  const read = Effect.fnUntraced(function* (from: number, to: number) {
    const found: Array<StoredLine> = []
    const stride = Math.floor(from / STRIDE)
    let number = stride * STRIDE
    const end = yield* scan(path, checkpoints[stride] ?? 0, ({ at, bytes }) => {
      if (number >= from && number < to) found.push({ at, text: decodeLine(bytes) })
      number++
      return number < to
    }).pipe(orMissing(nothing))
    if (unfinished && number < to && number >= from && end.bytes.length > 0)
      found.push({ at: end.at, text: decodeLine(end.bytes) })
    return found
  })

  return { total, read, reset: Effect.sync(forget) }
}

/**
 * Returns the range of a page among `total` lines. With `newestFirst`, page 1 is the end, else the beginning; within a
 * page the newest line is last. `from` equals `to` past the last page.
 */
export const pageBounds = (
  total: number,
  request: { readonly page: number; readonly per_page: number },
  newestFirst: boolean
): { readonly from: number; readonly to: number } => {
  const skip = (Math.max(1, request.page) - 1) * request.per_page
  if (newestFirst) {
    const to = Math.max(0, total - skip)
    return { from: Math.max(0, to - request.per_page), to }
  }
  const from = Math.min(total, skip)
  return { from, to: Math.min(total, from + request.per_page) }
}
