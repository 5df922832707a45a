/** The formats of archives: headers of GNU tar, and the records of zip with 64-bit sizes. Pure. */
import { isUtf8 } from "node:buffer"

const BLOCK = 512
/** The bytes that an entry counts for beside its contents. */
export const ENTRY_BYTES = BLOCK

export interface ArchiveEntry {
  /** Bytes, without a slash at the beginning or end. */
  readonly name: Buffer
  readonly kind: "file" | "folder" | "link"
  readonly mode: number
  /** Seconds since the epoch. */
  readonly mtime: number
  /** Bytes of the contents. */
  readonly size: number
  /** Where a link leads to. */
  readonly target: Buffer
}

const octal = (header: Buffer, at: number, length: number, value: number) => {
  const digits = Math.floor(value).toString(8)
  if (value >= 0 && digits.length < length) {
    header.write(`${digits.padStart(length - 1, "0")}\0`, at, "latin1")
    return
  }
  // Too large for octal digits: binary, as GNU tar writes it.
  let rest = BigInt(Math.max(0, Math.floor(value)))
  for (let index = at + length - 1; index > at; index--) {
    header[index] = Number(rest & 0xffn)
    rest >>= 8n
  }
  header[at] = 0x80
}

const types = { file: "0", folder: "5", link: "2", longName: "L", longTarget: "K" } as const

const block = (
  type: keyof typeof types,
  name: Buffer,
  target: Buffer,
  { mode, mtime, size }: Pick<ArchiveEntry, "mode" | "mtime" | "size">
): Buffer => {
  const header = Buffer.alloc(BLOCK)
  name.copy(header, 0, 0, 100)
  octal(header, 100, 8, mode)
  octal(header, 108, 8, 0)
  octal(header, 116, 8, 0)
  octal(header, 124, 12, size)
  octal(header, 136, 12, mtime)
  header.fill(" ", 148, 156)
  header.write(types[type], 156, "latin1")
  target.copy(header, 157, 0, 100)
  header.write("ustar  \0", 257, "latin1")
  let sum = 0
  for (let at = 0; at < BLOCK; at++) sum += header[at] ?? 0
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1")
  return header
}

const NONE = Buffer.alloc(0)
const LONG_NAME = Buffer.from("././@LongLink")

/** Returns the zeros that fill the last block of contents. */
export const tarPadding = (size: number): Buffer => Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK)

const long = (type: "longName" | "longTarget", text: Buffer): ReadonlyArray<Buffer> => {
  if (text.length <= 100) return []
  const size = text.length + 1
  return [block(type, LONG_NAME, NONE, { mode: 0, mtime: 0, size }), text, Buffer.alloc(1), tarPadding(size)]
}

/** Returns the header of an entry of a tar archive; a file's contents and {@link tarPadding} follow. */
export const tarHeader = (entry: ArchiveEntry): Buffer => {
  const { kind, name, target } = entry
  const full = kind === "folder" ? Buffer.concat([name, Buffer.from("/")]) : name
  const size = kind === "file" ? entry.size : 0
  return Buffer.concat([
    ...long("longTarget", target),
    ...long("longName", full),
    block(kind, full, target, { ...entry, size })
  ])
}

/** Returns the bytes that an entry of a tar archive takes, with its contents. */
export const tarBytes = ({ kind, name, size, target }: ArchiveEntry): number => {
  const blocks = (bytes: number) => Math.ceil(bytes / BLOCK) * BLOCK
  const longer = (length: number) => (length <= 100 ? 0 : BLOCK + blocks(length + 1))
  const full = kind === "folder" ? name.length + 1 : name.length
  return BLOCK + longer(target.length) + longer(full) + (kind === "file" ? blocks(size) : 0)
}

export const TAR_END = Buffer.alloc(2 * BLOCK)

/** Returns a line of the index of a backup without when and where its entry was packed. */
export const identityOf = (line: string): string =>
  line.replace(/,"mtime":\d+/, "").replace(/,"at":\d+\}$/, "}")

/** The state of an entry of a zip archive once its contents were written. */
export interface ZipRecord {
  readonly header: Buffer
  readonly name: Buffer
  readonly mode: number
  readonly crc: number
  readonly stored: number
  readonly size: number
  readonly offset: number
}

const VERSION = 45
/** A record with crc and sizes follows the contents. */
const DESCRIPTOR = 0x0008
/** The name is UTF-8: readers refuse an archive whose names are not what this says. */
const UTF_8 = 0x0800
const LIMIT_32 = 0xffff_ffff

/** Returns a time as MS-DOS has it, from 1980 on. */
const dosTime = (mtime: number): number => {
  const date = new Date(Math.min(4_354_819_199, Math.max(315_532_800, mtime)) * 1000)
  const day = ((date.getUTCFullYear() - 1980) << 9) | ((date.getUTCMonth() + 1) << 5) | date.getUTCDate()
  const time = (date.getUTCHours() << 11) | (date.getUTCMinutes() << 5) | (date.getUTCSeconds() >> 1)
  return ((day << 16) | time) >>> 0
}

/** Returns the local header of a zip entry, whose contents and {@link zipDescriptor} follow. */
export const zipHeader = ({ mtime }: ArchiveEntry, name: Buffer, method: 0 | 8): Buffer => {
  const header = Buffer.alloc(30)
  header.writeUInt32LE(0x0403_4b50, 0)
  header.writeUInt16LE(VERSION, 4)
  header.writeUInt16LE(DESCRIPTOR | (isUtf8(name) ? UTF_8 : 0), 6)
  header.writeUInt16LE(method, 8)
  header.writeUInt32LE(dosTime(mtime), 10)
  header.writeUInt16LE(name.length, 26)
  header.writeUInt16LE(20, 28)
  // The extra field tells readers that the sizes of the descriptor have 64 bits.
  const extra = Buffer.alloc(20)
  extra.writeUInt16LE(1, 0)
  extra.writeUInt16LE(16, 2)
  header.writeUInt32LE(LIMIT_32, 18)
  header.writeUInt32LE(LIMIT_32, 22)
  return Buffer.concat([header, name, extra])
}

export const zipDescriptor = ({ crc, size, stored }: Pick<ZipRecord, "crc" | "size" | "stored">): Buffer => {
  const record = Buffer.alloc(24)
  record.writeUInt32LE(0x0807_4b50, 0)
  record.writeUInt32LE(crc, 4)
  record.writeBigUInt64LE(BigInt(stored), 8)
  record.writeBigUInt64LE(BigInt(size), 16)
  return record
}

/** Returns the entry of the directory at the end of a zip archive. */
export const zipDirectoryEntry = ({ crc, header, mode, name, offset, size, stored }: ZipRecord): Buffer => {
  const entry = Buffer.alloc(46)
  entry.writeUInt32LE(0x0201_4b50, 0)
  // Made on Unix, so that readers take the mode.
  entry.writeUInt16LE((3 << 8) | VERSION, 4)
  header.copy(entry, 6, 4, 14)
  entry.writeUInt32LE(crc, 16)
  entry.writeUInt32LE(LIMIT_32, 20)
  entry.writeUInt32LE(LIMIT_32, 24)
  entry.writeUInt16LE(name.length, 28)
  entry.writeUInt16LE(28, 30)
  entry.writeUInt32LE((mode << 16) >>> 0, 38)
  entry.writeUInt32LE(LIMIT_32, 42)
  const extra = Buffer.alloc(28)
  extra.writeUInt16LE(1, 0)
  extra.writeUInt16LE(24, 2)
  extra.writeBigUInt64LE(BigInt(size), 4)
  extra.writeBigUInt64LE(BigInt(stored), 12)
  extra.writeBigUInt64LE(BigInt(offset), 20)
  return Buffer.concat([entry, name, extra])
}

export const zipEnd = (entries: number, length: number, offset: number): Buffer => {
  const end = Buffer.alloc(56 + 20 + 22)
  end.writeUInt32LE(0x0606_4b50, 0)
  end.writeBigUInt64LE(44n, 4)
  end.writeUInt16LE(VERSION, 12)
  end.writeUInt16LE(VERSION, 14)
  end.writeBigUInt64LE(BigInt(entries), 24)
  end.writeBigUInt64LE(BigInt(entries), 32)
  end.writeBigUInt64LE(BigInt(length), 40)
  end.writeBigUInt64LE(BigInt(offset), 48)
  end.writeUInt32LE(0x0706_4b50, 56)
  end.writeBigUInt64LE(BigInt(offset + length), 64)
  end.writeUInt32LE(1, 72)
  end.writeUInt32LE(0x0605_4b50, 76)
  end.writeUInt16LE(Math.min(entries, 0xffff), 84)
  end.writeUInt16LE(Math.min(entries, 0xffff), 86)
  end.writeUInt32LE(LIMIT_32, 88)
  end.writeUInt32LE(LIMIT_32, 92)
  return end
}
