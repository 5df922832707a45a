/**
 * The reader of an instance's archive, in the GNU tar format of `packFiles`. The sender is not
 * trusted. The reader accepts folders, files and symbolic links, each in a folder that the archive has listed before,
 * and refuses everything else. Pure: the caller writes exactly the steps that the reader returns.
 */

const BLOCK = 512
/** The magic of GNU tar: the whole name is in the name field, or in a long name before the header. */
const MAGIC = Buffer.from("ustar  \0", "latin1")
/** The longest path with its `./`, or link target, in bytes: the limit of Linux. */
export const MAX_PATH = 4096
const MAX_NAME = 255
/** A path and its NUL, rounded up to blocks. */
const MAX_LONG_NAME = MAX_PATH + BLOCK
const MAX_PIECES = 100_000
/** Blocks of zeros after the end: `tar` fills its last record. */
const MAX_FILLER = 2048

/** The attributes of an entry that are kept; `mtime` in seconds. Set-id and sticky bits are dropped. */
export interface Attributes {
  readonly mode: number
  readonly mtime: number
}

/** An entry's name in the current folder, and its path in the archive; one character per byte. */
interface Named {
  readonly name: string
  readonly path: string
}

/** The next action on the disk. `leave` completes a `folder`, `end` a `file`; `refused` is the last step. */
export type Step =
  | ({ readonly _tag: "folder" } & Named)
  | ({ readonly _tag: "leave"; readonly path: string } & Attributes)
  | ({ readonly _tag: "link"; readonly target: string; readonly mtime: number } & Named)
  | ({ readonly _tag: "file" } & Named)
  | { readonly _tag: "data"; readonly at: number; readonly bytes: Buffer }
  | ({ readonly _tag: "end"; readonly size: number } & Attributes)
  | { readonly _tag: "refused"; readonly why: string }

const text = (block: Buffer, from: number, length: number): string => {
  const field = block.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.toString("latin1", 0, end === -1 ? length : end)
}

/** Returns a number of a header: octal digits, binary after 0x80, or negative binary after 0xff; else undefined. */
const numberAt = (block: Buffer, from: number, length: number): number | undefined => {
  const first = block[from] ?? 0
  if (first < 0x80) {
    const digits = text(block, from, length).trim()
    return /^[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : undefined
  }
  if (first !== 0x80 && first !== 0xff) return undefined
  const bytes = block.subarray(from + 1, from + length)
  // The complement of a negative number is small, so no digit is lost.
  let value = 0
  for (const byte of bytes) value = value * 256 + (first === 0xff ? 0xff - byte : byte)
  return Number.isSafeInteger(value) ? (first === 0xff ? -1 - value : value) : undefined
}

const sizeAt = (block: Buffer, from: number): number | undefined => {
  const size = numberAt(block, from, 12)
  return size === undefined || size < 0 ? undefined : size
}

const sumOf = (block: Buffer): number => {
  let sum = 0
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 0x20 : (block[at] ?? 0)
  return sum
}

const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0)

const padded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK

/** Returns a path of an archive for messages: quoted, and cut after 100 bytes. */
export const shownPath = (name: string): string =>
  JSON.stringify(Buffer.from(name.slice(0, 100), "latin1").toString("utf8"))

interface LongName {
  readonly type: "L" | "K"
  readonly size: number
  readonly bytes: Array<Buffer>
  /** Missing bytes, padding included. */
  left: number
}

interface Piece {
  readonly at: number
  readonly length: number
}

interface OpenFile extends Attributes {
  readonly path: string
  readonly size: number
  /** Bytes of its contents in the archive. */
  readonly stored: number
  readonly pieces: Array<Piece>
  /** Whether more of the map of pieces precedes the contents. */
  mapping: boolean
  /** Missing bytes, padding included. */
  left: number
  /** The index of the current piece, and how many of its bytes were read. */
  piece: number
  read: number
}

/** Reads an archive as a stream. Memory holds a block, two long names, open folder names and one map of pieces. */
export class ArchiveReader {
  #block = Buffer.alloc(0)
  #file: OpenFile | undefined
  #long: LongName | undefined
  #longName: string | undefined
  #longTarget: string | undefined
  #zeros = 0
  readonly #open: Array<Attributes & { readonly path: string }> = []

  get ended(): boolean {
    return this.#zeros >= 2
  }

  *read(chunk: Uint8Array): Generator<Step> {
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    while (rest.length > 0) {
      const file = this.#file
      if (file !== undefined && !file.mapping) {
        const piece = rest.subarray(0, file.left)
        rest = rest.subarray(piece.length)
        yield* this.#contents(file, piece)
        continue
      }
      const missing = BLOCK - this.#block.length
      this.#block = Buffer.concat([this.#block, rest.subarray(0, missing)])
      rest = rest.subarray(missing)
      if (this.#block.length < BLOCK) return
      const block = this.#block
      this.#block = Buffer.alloc(0)
      yield* this.#next(block)
    }
  }

  *#next(block: Buffer): Generator<Step> {
    if (this.#long !== undefined) return yield* this.#longBlock(this.#long, block)
    if (this.#file !== undefined) return yield* this.#map(this.#file, block, 0, 21)
    if (!isZero(block)) return yield* this.#zeros > 0 ? refused("data after the end") : this.#header(block)
    this.#zeros += 1
    if (this.#zeros === 2) yield* this.#leave(0)
    if (this.#zeros > MAX_FILLER) yield* refused("too much filler after the end")
  }

  *#leave(depth: number): Generator<Step> {
    for (const folder of this.#open.splice(depth).toReversed()) yield { _tag: "leave", ...folder }
  }

  *#longBlock(long: LongName, block: Buffer): Generator<Step> {
    long.bytes.push(block)
    long.left -= BLOCK
    if (long.left > 0) return
    this.#long = undefined
    const bytes = Buffer.concat(long.bytes).subarray(0, long.size)
    const end = bytes.indexOf(0)
    if (end !== -1 && end !== bytes.length - 1) return yield* refused("a name contains a NUL character")
    const name = bytes.toString("latin1", 0, end === -1 ? bytes.length : end)
    if (long.type === "L") this.#longName = name
    else this.#longTarget = name
  }

  *#header(block: Buffer): Generator<Step> {
    if (!block.subarray(257, 265).equals(MAGIC)) return yield* refused("not a GNU tar archive")
    const [mode, size, mtime] = [numberAt(block, 100, 8), sizeAt(block, 124), numberAt(block, 136, 12)]
    if (numberAt(block, 148, 8) !== sumOf(block) || mode === undefined || mtime === undefined) {
      return yield* refused("a header is damaged")
    }
    if (size === undefined) return yield* refused("an invalid size")
    const attributes = { mode: mode & 0o777, mtime }
    const type = String.fromCharCode(block[156] ?? 0)
    if (type === "L" || type === "K") {
      if (size === 0 || size > MAX_LONG_NAME) return yield* refused("a name is too long")
      this.#long = { type, size, bytes: [], left: padded(size) }
      return
    }
    const full = this.#longName ?? text(block, 0, 100)
    const target = this.#longTarget ?? text(block, 157, 100)
    this.#longName = undefined
    this.#longTarget = undefined
    if (type !== "0" && type !== "S" && type !== "5" && type !== "2") {
      return yield* refused(`${shownPath(full)} is not a file, folder or link`)
    }
    if ((type === "5" || type === "2") && size > 0) return yield* refused("a folder or link has contents")
    if (full === "./" && type === "5" && this.#open.length === 0) {
      this.#open.push({ path: "", ...attributes })
      return yield { _tag: "folder", name: "", path: "" }
    }
    const named = this.#locate(type === "5" && full.endsWith("/") ? full.slice(0, -1) : full)
    if (typeof named === "string") return yield* refused(`${shownPath(full)} ${named}`)
    const { depth, name, path } = named
    yield* this.#leave(depth)
    if (type === "5") {
      this.#open.push({ path, ...attributes })
      return yield { _tag: "folder", name, path }
    }
    if (type === "2") {
      if (target === "" || target.length >= MAX_PATH) {
        return yield* refused(`${shownPath(full)} is a link with an invalid target`)
      }
      return yield { _tag: "link", name, path, target, mtime }
    }
    yield { _tag: "file", name, path }
    const sparse = type === "S"
    const whole = sparse ? sizeAt(block, 483) : size
    if (whole === undefined) return yield* refused("an invalid size")
    const file: OpenFile = {
      path,
      ...attributes,
      size: whole,
      stored: size,
      pieces: sparse ? [] : [{ at: 0, length: size }],
      mapping: sparse,
      left: padded(size),
      piece: 0,
      read: 0
    }
    this.#file = file
    if (sparse) yield* this.#map(file, block, 386, 4)
    else yield* this.#contents(file, Buffer.alloc(0))
  }

  #locate(full: string): (Named & { readonly depth: number }) | string {
    const path = full.slice(2)
    const parts = path.split("/")
    if (
      !full.startsWith("./") ||
      full.length > MAX_PATH ||
      parts.some((part) => part === "" || part === "." || part === ".." || part.length > MAX_NAME)
    ) {
      return "is not a path of an instance"
    }
    const parent = parts.slice(0, -1).join("/")
    const index = this.#open.findLastIndex((folder) => folder.path === parent)
    if (index === -1) return "is in a folder that the archive has not listed"
    return { name: parts.at(-1) ?? "", path, depth: index + 1 }
  }

  /** Reads `count` entries of the map of a sparse file; the byte after them and a size states whether more follow. */
  *#map(file: OpenFile, block: Buffer, from: number, count: number): Generator<Step> {
    const bad = () => refused(`the sparse map of ${shownPath(file.path)} is damaged`)
    let offset = from
    for (; offset < from + count * 24 && block[offset + 12] !== 0; offset += 24) {
      const [at, length] = [sizeAt(block, offset), sizeAt(block, offset + 12)]
      const last = file.pieces.at(-1)
      if (at === undefined || length === undefined || at < (last === undefined ? 0 : last.at + last.length)) {
        return yield* bad()
      }
      file.pieces.push({ at, length })
    }
    const taken = (offset - from) / 24
    // The offset is 504 in a block of the map after the header, and 482 in the header.
    file.mapping = block[from === 0 ? 504 : 482] !== 0
    // A map may continue only if its block is full, and an additional block must not be empty.
    if ((file.mapping && taken < count) || (from === 0 && taken === 0)) return yield* bad()
    if (file.pieces.length > MAX_PIECES) {
      return yield* refused(`${shownPath(file.path)} has more than ${MAX_PIECES} pieces between holes`)
    }
    if (file.mapping) return
    const last = file.pieces.at(-1) ?? { at: 0, length: 0 }
    const stored = file.pieces.reduce((sum, piece) => sum + piece.length, 0)
    if (stored !== file.stored || last.at + last.length > file.size) return yield* bad()
    yield* this.#contents(file, Buffer.alloc(0))
  }

  *#contents(file: OpenFile, bytes: Buffer): Generator<Step> {
    file.left -= bytes.length
    let rest = bytes
    for (let piece = file.pieces[file.piece]; piece !== undefined; piece = file.pieces[file.piece]) {
      const part = rest.subarray(0, piece.length - file.read)
      if (part.length > 0) yield { _tag: "data", at: piece.at + file.read, bytes: part }
      file.read += part.length
      rest = rest.subarray(part.length)
      if (file.read < piece.length) break
      file.piece += 1
      file.read = 0
    }
    if (file.left > 0) return
    this.#file = undefined
    yield { _tag: "end", size: file.size, mode: file.mode, mtime: file.mtime }
  }
}

function* refused(why: string): Generator<Step> {
  yield { _tag: "refused", why }
}
