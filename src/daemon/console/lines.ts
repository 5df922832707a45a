import { Effect } from "effect"
import { pause } from "../../shared/work/slices.ts"
import { io, lstat, openFile, orMissing } from "../disk/fsio.ts"
import { CHUNK, fileId } from "./consoleFiles.ts"

/** The division of consoles and logs into lines, and the index of the lines of a file. */

/** The longest line, in bytes; a longer line is divided into parts. */
export const LINE_CAP = 8 * 1024

/** Bytes between two pauses: a server may end a line with each byte. */
const PIECE = 16 * 1024

/** Divides bytes into pieces, between which requests are served. */
export const piecesOf = (bytes: Buffer): ReadonlyArray<Buffer> =>
  Array.from({ length: Math.ceil(bytes.length / PIECE) }, (_, at) =>
    bytes.subarray(at * PIECE, (at + 1) * PIECE)
  )

const NEWLINE = 10
const RETURN = 13
/** The bytes of an empty line: a console may have millions of them. */
const EMPTY = new Uint8Array()

/** A line, or a part of a line that is longer than {@link LINE_CAP}, in bytes. */
export interface LinePart {
  readonly bytes: Uint8Array
  readonly at: number
  /** Whether the part before is of the same line. */
  readonly continues: boolean
  readonly isCut: boolean
}

export interface Line extends Pick<LinePart, "continues" | "isCut"> {
  readonly text: string
  readonly isOpen?: true
}

/**
 * Divides a stream into lines. A carriage return before other text replaces the line so far, as on a terminal; carriage
 * returns before a line break belong to the break. A part ends outside UTF-8 sequences. The lines do not depend on how
 * the bytes are chunked.
 *
 * @param offset of the first byte of the stream
 * @param isWithin whether the stream begins within a line
 */
export const lineReader = (offset = 0, isWithin = false) => {
  let open: Buffer = Buffer.alloc(0)
  let at = offset
  let continues = isWithin
  let isReturned = false
  let position = offset

  return {
    /** Calls `onPart` with each part that ends in the chunk; the bytes are a view. */
    read: (chunk: Buffer, onPart: (part: LinePart) => void): void => {
      const data = open.length === 0 ? chunk : Buffer.concat([open, chunk])
      const begin = position - open.length
      let from = 0
      let returned = isReturned ? open.length : undefined
      const startAt = (index: number, isSameLine: boolean) => {
        from = index
        at = begin + index
        continues = isSameLine
        returned = undefined
      }
      const find = (byte: number, index: number) => {
        const found = data.indexOf(byte, index)
        return found < 0 ? data.length : found
      }
      let nextReturn = find(RETURN, open.length)
      for (let index = open.length; index < data.length; index++) {
        // Most lines end before a carriage return: they are found without a look at each byte.
        if (data[index] !== NEWLINE && (index === from || index === open.length)) {
          if (nextReturn < index) nextReturn = find(RETURN, index)
          const end = returned === undefined ? find(NEWLINE, index) : index
          if (end - from <= LINE_CAP && end < nextReturn) index = end
          if (index === data.length) break
        }
        const byte = data[index]
        if (byte === RETURN) returned ??= index
        else if (byte === NEWLINE) {
          const end = returned ?? index
          onPart({ bytes: end === from ? EMPTY : data.subarray(from, end), at, continues, isCut: false })
          startAt(index + 1, false)
        } else if (returned !== undefined) startAt(index, false)
        else if (index - from === LINE_CAP) {
          let cut = index
          for (let back = 0; back < 3 && ((data[cut] ?? 0) & 0xc0) === 0x80; back++) cut--
          onPart({ bytes: data.subarray(from, cut), at, continues, isCut: true })
          startAt(cut, true)
        }
      }
      position += chunk.length
      isReturned = returned !== undefined
      open = Buffer.from(data.subarray(from, returned))
    },
    open: (): LinePart => ({ bytes: open, at, continues, isCut: false })
  }
}

const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true })

/** Returns a line as text; bytes that are not UTF-8 become U+FFFD. */
export const lineOf = ({ bytes, continues, isCut }: LinePart): Line => ({
  text: decoder.decode(bytes),
  continues,
  isCut
})

const STRIDE = 256

export interface StoredLine {
  readonly at: number
  readonly text: string
}

/** Reads finished lines from `offset` until `onLine` returns false. Returns the unfinished line at the end. */
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

/** Counts the lines of a growing file and reads ranges in bounded memory. Another file restarts the count. */
export const makeLineIndex = (path: string) => {
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
    let count = lines
    // `lines` are always those before `begin`: a count that is interrupted goes on from there.
    const end = yield* scan(path, begin, ({ at }) => {
      begin = at
      lines = count
      if (count % STRIDE === 0) checkpoints[count / STRIDE] = at
      count++
      return true
    }).pipe(orMissing(nothing))
    begin = end.at
    lines = count
    unfinished = end.bytes.length > 0
    if (lines % STRIDE === 0) checkpoints[lines / STRIDE] = begin
    return unfinished ? lines + 1 : lines
  })

  const read = Effect.fnUntraced(function* (from: number, to: number) {
    const found: Array<StoredLine> = []
    const stride = Math.floor(from / STRIDE)
    let number = stride * STRIDE
    const end = yield* scan(path, checkpoints[stride] ?? 0, ({ at, bytes }) => {
      if (number >= from && number < to) found.push({ at, text: decoder.decode(bytes) })
      number++
      return number < to
    }).pipe(orMissing(nothing))
    if (unfinished && number < to && number >= from && end.bytes.length > 0)
      found.push({ at: end.at, text: decoder.decode(end.bytes) })
    return found
  })

  return {
    /** The number of lines, an unterminated last line included. */
    total,
    /** Returns the lines from `from` (0 is the first) up to, but without, `to`, as of the last `total`. */
    read,
    reset: Effect.sync(forget)
  }
}

/**
 * Returns a page's range of `total` lines, the newest last, empty past the last page. `newestFirst` counts from the
 * end.
 */
export const pageBounds = (
  total: number,
  request: { readonly page: number; readonly per_page: number },
  newestFirst: boolean
): { readonly from: number; readonly to: number } => {
  const near = Math.min(total, (Math.max(1, request.page) - 1) * request.per_page)
  const far = Math.min(total, near + request.per_page)
  return newestFirst ? { from: total - far, to: total - near } : { from: near, to: far }
}
