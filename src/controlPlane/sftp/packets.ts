/** Packets of SFTP version 3 (draft-ietf-secsh-filexfer-02), read and written without a copy of file contents. */

import type { FileEntry } from "../../contract/domain/Files.ts"
import type { FileAttributes } from "../../contract/nodeApi/sessionFrames.ts"
import { defined } from "../../shared/work/defined.ts"

export const INIT = 1
export const VERSION = 2
export const OPEN = 3
export const CLOSE = 4
export const READ = 5
export const WRITE = 6
export const LSTAT = 7
export const FSTAT = 8
export const SETSTAT = 9
export const FSETSTAT = 10
export const OPENDIR = 11
export const READDIR = 12
export const REMOVE = 13
export const MKDIR = 14
export const RMDIR = 15
export const REALPATH = 16
export const STAT = 17
export const RENAME = 18
export const STATUS = 101
const HANDLE = 102
const DATA = 103
const NAME = 104
const ATTRS = 105
export const EXTENDED = 200
const EXTENDED_REPLY = 201

export const OK = 0
export const EOF = 1
export const NO_SUCH_FILE = 2
export const PERMISSION_DENIED = 3
export const FAILURE = 4
export const BAD_MESSAGE = 5
export const OP_UNSUPPORTED = 8

/** Largest packet of a client, in bytes: OpenSSH's own bound. */
export const LARGEST_PACKET = 256 * 1024
/** Bytes of one read, as OpenSSH's server returns them. */
export const LARGEST_READ = LARGEST_PACKET - 1024

const SIZE_BIT = 1
const OWNER_BIT = 2
const MODE_BIT = 4
const TIME_BIT = 8
const EXTENDED_BIT = 0x8000_0000

const FOLDER_TYPE = 0o040000
const types: Readonly<Record<FileEntry["type"], number>> = {
  file: 0o100000,
  folder: FOLDER_TYPE,
  link: 0o120000,
  other: 0o010000
}

/** Reads the fields of a packet. A field beyond its end makes {@link isMalformed} true. */
export class PacketBody {
  isMalformed = false
  readonly #bytes: Buffer
  #at: number

  constructor(bytes: Buffer, at = 0) {
    this.#bytes = bytes
    this.#at = at
  }

  #take(length: number): Buffer {
    const from = this.#at
    if (from + length > this.#bytes.length) {
      this.isMalformed = true
      return Buffer.alloc(Math.min(length, 8))
    }
    this.#at = from + length
    return this.#bytes.subarray(from, from + length)
  }

  uint32(): number {
    return this.#take(4).readUInt32BE(0)
  }

  uint64(): number {
    const value = this.#take(8).readBigUInt64BE(0)
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.isMalformed = true
    return Number(value)
  }

  string(): Buffer {
    return this.#take(this.uint32())
  }

  text(): string {
    return this.string().toString("latin1")
  }

  /** Owners and extended attributes are read and ignored. */
  attributes(): FileAttributes {
    const flags = this.uint32()
    const size = (flags & SIZE_BIT) === 0 ? undefined : this.uint64()
    if ((flags & OWNER_BIT) !== 0) this.#take(8)
    const mode = (flags & MODE_BIT) === 0 ? undefined : this.uint32() & 0o777
    let modified: number | undefined
    if ((flags & TIME_BIT) !== 0) {
      this.uint32()
      modified = this.uint32()
    }
    if ((flags & EXTENDED_BIT) !== 0) {
      for (let left = this.uint32(); left > 0 && !this.isMalformed; left -= 1) {
        this.string()
        this.string()
      }
    }
    return {
      ...defined({ mode, modified, size })
    }
  }
}

const uint32 = (value: number): Buffer => {
  const bytes = Buffer.allocUnsafe(4)
  bytes.writeUInt32BE(value >>> 0)
  return bytes
}

const uint64 = (value: number): Buffer => {
  const bytes = Buffer.allocUnsafe(8)
  bytes.writeBigUInt64BE(BigInt(Math.max(0, Math.floor(value))))
  return bytes
}

const string = (value: string | Uint8Array): ReadonlyArray<Uint8Array> => {
  const bytes = typeof value === "string" ? Buffer.from(value) : value
  return [uint32(bytes.length), bytes]
}

const packet = (type: number, ...parts: ReadonlyArray<Uint8Array>): Buffer => {
  const length = parts.reduce((sum, part) => sum + part.length, 1)
  return Buffer.concat([uint32(length), Buffer.of(type), ...parts])
}

/** The attributes of an entry or of an open file. */
export interface Attributes {
  readonly type: FileEntry["type"]
  readonly mode: number
  readonly modified: number
  readonly size: number
}

export const attributesOf = ({ mode, modified_at, size, type }: FileEntry): Attributes => ({
  type,
  mode: Number.parseInt(mode, 8),
  modified: Math.floor(Date.parse(modified_at) / 1000),
  size
})

const attributes = ({ mode, modified, size, type }: Attributes): Buffer => {
  const time = uint32(Math.min(Math.max(0, modified), 0xffff_ffff))
  return Buffer.concat([
    uint32(SIZE_BIT | MODE_BIT | TIME_BIT),
    uint64(size),
    uint32((types[type] ?? 0) | mode),
    time,
    time
  ])
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

const bitsOf = (mode: number): string =>
  [6, 3, 0]
    .map((shift) => {
      const bits = (mode >> shift) & 7
      return `${(bits & 4) === 0 ? "-" : "r"}${(bits & 2) === 0 ? "-" : "w"}${(bits & 1) === 0 ? "-" : "x"}`
    })
    .join("")

/** Returns a line as `ls -l` has it, in UTC, without an owner. */
const longName = ({ mode, modified, size, type }: Attributes, name: string): string => {
  const date = new Date(modified * 1000)
  const kind = { file: "-", folder: "d", link: "l", other: "p" }[type]
  const day = String(date.getUTCDate()).padStart(2)
  return `${kind}${bitsOf(mode)} 1 - - ${String(size).padStart(12)} ${MONTHS[date.getUTCMonth()]} ${day} ${date.getUTCFullYear()} ${name}`
}

export interface Named {
  readonly name: Uint8Array
  /** As people read it: the name of a server beside its id. */
  readonly shown: string
  readonly attributes: Attributes
}

export const statusPacket = (id: number, code: number, text: string): Buffer =>
  packet(STATUS, uint32(id), uint32(code), ...string(text), ...string("en"))
export const handlePacket = (id: number, handle: string): Buffer =>
  packet(HANDLE, uint32(id), ...string(handle))
export const attributesPacket = (id: number, of: Attributes): Buffer =>
  packet(ATTRS, uint32(id), attributes(of))
export const versionPacket = (extensions: ReadonlyArray<readonly [string, string]>): Buffer =>
  packet(VERSION, uint32(3), ...extensions.flatMap(([name, data]) => [...string(name), ...string(data)]))
export const namesPacket = (id: number, names: ReadonlyArray<Named>): Buffer =>
  packet(
    NAME,
    uint32(id),
    uint32(names.length),
    ...names.flatMap((entry) => [
      ...string(entry.name),
      ...string(longName(entry.attributes, entry.shown)),
      attributes(entry.attributes)
    ])
  )
/** The answer to `statvfs@openssh.com`: blocks of 4 KiB, names of 255 bytes. */
export const spacePacket = (
  id: number,
  space: {
    readonly bytes: number
    readonly free_bytes: number
    readonly files: number
    readonly free_files: number
  }
): Buffer => {
  const block = 4096
  const free = Math.floor(space.free_bytes / block)
  const figures = [block, block, Math.floor(space.bytes / block), free, free]
  const counts = [space.files, space.free_files, space.free_files, 0, 2, 255]
  return packet(EXTENDED_REPLY, uint32(id), ...[...figures, ...counts].map(uint64))
}
export const limitsPacket = (id: number, openFiles: number): Buffer =>
  packet(EXTENDED_REPLY, uint32(id), ...[LARGEST_PACKET, LARGEST_READ, LARGEST_READ, openFiles].map(uint64))

/** The head of a `DATA` packet; the bytes follow as they are. */
export const dataHead = (id: number, length: number): Buffer => {
  const head = Buffer.allocUnsafe(13)
  head.writeUInt32BE(9 + length, 0)
  head.writeUInt8(DATA, 4)
  head.writeUInt32BE(id, 5)
  head.writeUInt32BE(length, 9)
  return head
}

/** Pieces that are kept beside each other: a piece of one byte takes some hundred bytes of memory. */
const MOST_PIECES = 256

/** Cuts the bytes of a channel into packets. */
export class PacketReader {
  #pieces: Array<Buffer> = []
  #length = 0

  add(bytes: Buffer): void {
    this.#pieces.push(bytes)
    this.#length += bytes.length
    if (this.#pieces.length > MOST_PIECES) this.#joined()
  }

  #joined(): Buffer {
    const [first] = this.#pieces
    if (this.#pieces.length === 1 && first !== undefined) return first
    const all = Buffer.concat(this.#pieces)
    this.#pieces = [all]
    return all
  }

  #wanted = 4

  /** Returns the next packet without its length, if it is complete; `"invalid"` for one that is empty or too long. */
  next(): Buffer | "invalid" | undefined {
    if (this.#length < this.#wanted) return undefined
    const all = this.#joined()
    const length = all.readUInt32BE(0)
    if (length === 0 || length > LARGEST_PACKET) return "invalid"
    this.#wanted = 4 + length
    if (this.#length < this.#wanted) return undefined
    const rest = all.subarray(this.#wanted)
    const found = all.subarray(4, this.#wanted)
    this.#pieces = rest.length === 0 ? [] : [rest]
    this.#length = rest.length
    this.#wanted = 4
    return found
  }
}
