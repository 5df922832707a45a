/**
 * What an archive of an instance may hold, looked at before `tar` sees it: folders, files and symbolic links, each below
 * a folder that the archive has just named. So nothing is ever written through a link, and nothing outside. Pure.
 */

const BLOCK = 512
/** `ustar` in the way of GNU tar: no part of the name is anywhere but in the name, or in a long name before it. */
const MAGIC = Buffer.from("ustar  \0", "latin1")
/** Bytes of a path, and of a link's target: what Linux takes. */
const LONGEST_PATH = 4096
const LONGEST_NAME = 255
/** A path with its NUL, in whole blocks. */
const LONGEST_LONG = LONGEST_PATH + BLOCK

const text = (block: Buffer, from: number, length: number): string => {
  const field = block.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.toString("latin1", 0, end === -1 ? length : end)
}

/** A number of a header: octal digits, or binary where the first bit says so; undefined where it is none. */
const numberAt = (block: Buffer, from: number, length: number): number | undefined => {
  const first = block[from] ?? 0
  if ((first & 0x80) === 0) {
    const digits = text(block, from, length).trim()
    return /^[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : undefined
  }
  let value = first & 0x7f
  for (const byte of block.subarray(from + 1, from + length)) value = value * 256 + byte
  return Number.isSafeInteger(value) ? value : undefined
}

const sumOf = (block: Buffer): number => {
  let sum = 0
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 0x20 : (block[at] ?? 0)
  return sum
}

const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0)

/** A long name that is being read. */
interface LongName {
  readonly type: string
  readonly size: number
  readonly bytes: Array<Buffer>
  /** Bytes to come, padding included. */
  left: number
}

/** Attributes of the folder that holds all the others; `mtime` in seconds. */
export interface RootAttributes {
  readonly mode: number
  readonly uid: number
  readonly gid: number
  readonly mtime: number
}

/** Follows an archive as it passes. Keeps no more of it than a block, a long name and the names of open folders. */
export class ArchiveCheck {
  #block = Buffer.alloc(0)
  /** Bytes of contents that have yet to pass. */
  #contents = 0
  /** More of the map of a file with holes comes, before its contents. */
  #extended = false
  #long: LongName | undefined
  #longName: string | undefined
  #zeros = 0
  /** Paths of the folders that the present one is in, outermost first; the root is "". */
  readonly #open: Array<string> = []

  #root: RootAttributes | undefined

  /** Of the archive's first entry. */
  get root(): RootAttributes | undefined {
    return this.#root
  }

  /** Whether the mark of the end has passed. */
  get ended(): boolean {
    return this.#zeros >= 2
  }

  /** Looks at the next bytes; answers what is wrong with them. */
  push(chunk: Uint8Array): string | undefined {
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    while (rest.length > 0) {
      if (this.#contents > 0 && !this.#extended) {
        const passed = Math.min(this.#contents, rest.length)
        this.#contents -= passed
        rest = rest.subarray(passed)
        continue
      }
      const missing = BLOCK - this.#block.length
      this.#block = Buffer.concat([this.#block, rest.subarray(0, missing)])
      rest = rest.subarray(missing)
      if (this.#block.length < BLOCK) return undefined
      const block = this.#block
      this.#block = Buffer.alloc(0)
      const problem = this.#next(block)
      if (problem !== undefined) return problem
    }
    return undefined
  }

  #next(block: Buffer): string | undefined {
    if (this.#long !== undefined) return this.#longBlock(this.#long, block)
    if (this.#extended) {
      this.#extended = block[504] !== 0
      return undefined
    }
    if (isZero(block)) {
      this.#zeros += 1
      return undefined
    }
    if (this.#zeros > 0) return "something follows its end"
    return this.#header(block)
  }

  #longBlock(long: LongName, block: Buffer): string | undefined {
    long.bytes.push(block)
    long.left -= BLOCK
    if (long.left > 0) return undefined
    this.#long = undefined
    if (long.type === "K") return undefined
    const name = Buffer.concat(long.bytes).subarray(0, long.size)
    const end = name.indexOf(0)
    if (end !== -1 && end !== name.length - 1) return "a name with a NUL character"
    this.#longName = name.toString("latin1", 0, end === -1 ? name.length : end)
    return undefined
  }

  #header(block: Buffer): string | undefined {
    if (!block.subarray(257, 265).equals(MAGIC)) return "it is no archive of GNU tar"
    if (numberAt(block, 148, 8) !== sumOf(block)) return "a header is damaged"
    const size = numberAt(block, 124, 12)
    if (size === undefined) return "a size that is none"
    const type = String.fromCharCode(block[156] ?? 0)
    const padded = Math.ceil(size / BLOCK) * BLOCK
    if (type === "L" || type === "K") {
      if (size === 0 || size > LONGEST_LONG) return "a name that is too long"
      this.#long = { type, size, bytes: [], left: padded }
      return undefined
    }
    const name = this.#longName ?? text(block, 0, 100)
    this.#longName = undefined
    if (name === "./" && type === "5" && this.#root === undefined) return this.#rootEntry(block)
    if (type === "5" || type === "2")
      return size === 0 ? this.#entry(type, name) : "a folder or link with contents"
    if (type !== "0" && type !== "S")
      return `neither file nor folder nor link: ${JSON.stringify(name.slice(0, 100))}`
    this.#contents = padded
    this.#extended = type === "S" && block[482] !== 0
    return this.#entry(type, name)
  }

  #rootEntry(block: Buffer): string | undefined {
    const [mode, uid, gid, mtime] = [
      numberAt(block, 100, 8),
      numberAt(block, 108, 8),
      numberAt(block, 116, 8),
      numberAt(block, 136, 12)
    ]
    if (mode === undefined || uid === undefined || gid === undefined || mtime === undefined) {
      return "a header is damaged"
    }
    this.#root = { mode: mode & 0o7777, uid, gid, mtime }
    this.#open.push("")
    return undefined
  }

  #entry(type: "0" | "S" | "5" | "2", name: string): string | undefined {
    const refused = (why: string) => `${JSON.stringify(name.slice(0, 100))} ${why}`
    if (!name.startsWith("./") || name.length > LONGEST_PATH) return refused("is no path of an instance")
    const path = type === "5" && name.endsWith("/") ? name.slice(2, -1) : name.slice(2)
    const parts = path.split("/")
    if (parts.some((part) => part === "" || part === "." || part === ".." || part.length > LONGEST_NAME)) {
      return refused("is no path of an instance")
    }
    const parent = parts.slice(0, -1).join("/")
    while (this.#open.length > 0 && this.#open.at(-1) !== parent) this.#open.pop()
    if (this.#open.length === 0) return refused("is in no folder that stands before it")
    if (type === "5") this.#open.push(path)
    return undefined
  }
}
