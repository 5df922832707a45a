/** The directory at the end of zip archives, which is their only list of entries (APPNOTE 4.3). Pure. */
import { LONGEST_TARGET } from "./member.ts"

/** A record of the directory. */
export interface ZipEntry {
  readonly name: Buffer
  readonly flags: number
  /** 0: stored, 8: deflated. */
  readonly method: number
  readonly crc: number
  /** Bytes in the archive, and of the contents. */
  readonly packed: number
  readonly size: number
  /** Where its local header begins. */
  readonly offset: number
  /** As in `stat`; undefined if the archive was not made on Unix. */
  readonly mode: number | undefined
  /** Seconds since the epoch. */
  readonly mtime: number
  /** Bytes of this record. */
  readonly length: number
}

/** Where the directory lies. */
export interface ZipEnd {
  readonly entries: number
  readonly offset: number
  readonly length: number
}

export const LOCAL_HEADER = 30
const RECORD = 46
const END = 22
const LOCATOR = 20
const END_64 = 56
const LIMIT_16 = 0xffff
const LIMIT_32 = 0xffff_ffff
const UNIX = new Set([3, 19])
/** The bits of flags that mean encryption. */
const ENCRYPTED = 0x2041
const S_IFMT = 0o170000
const S_IFREG = 0o100000
const S_IFDIR = 0o040000
const S_IFLNK = 0o120000

/** Bytes at the end of an archive in which the end of the directory is: with a comment of 64 KiB. */
export const ZIP_TAIL = END + LIMIT_16 + LOCATOR + END_64

const safe = (value: bigint): number | undefined =>
  value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined

/** Finds the directory by the last bytes of an archive of `size` bytes. Returns why not, if it is not there. */
export const zipEnd = (tail: Buffer, size: number): ZipEnd | string => {
  let at = tail.length - END
  while (
    at >= 0 &&
    !(tail.readUInt32LE(at) === 0x0605_4b50 && at + END + tail.readUInt16LE(at + 20) === tail.length)
  )
    at -= 1
  if (at < 0) return "its directory is missing"
  const from = size - tail.length
  let end = from + at
  let entries: number | undefined = tail.readUInt16LE(at + 10)
  let length: number | undefined = tail.readUInt32LE(at + 12)
  let offset: number | undefined = tail.readUInt32LE(at + 16)
  const is64 = entries === LIMIT_16 || length === LIMIT_32 || offset === LIMIT_32
  if (is64 && at >= LOCATOR && tail.readUInt32LE(at - LOCATOR) === 0x0706_4b50) {
    end = safe(tail.readBigUInt64LE(at - LOCATOR + 8)) ?? -1
    const there = end - from
    if (there < 0 || there + END_64 > at - LOCATOR || tail.readUInt32LE(there) !== 0x0606_4b50)
      return "its directory is missing"
    entries = safe(tail.readBigUInt64LE(there + 32))
    length = safe(tail.readBigUInt64LE(there + 40))
    offset = safe(tail.readBigUInt64LE(there + 48))
  } else if (tail.readUInt16LE(at + 4) !== 0 || tail.readUInt16LE(at + 6) !== 0) {
    return "it is one of several parts"
  }
  if (entries === undefined || length === undefined || offset === undefined || offset + length !== end)
    return "its directory is not where its end says"
  return { entries, offset, length }
}

/** Reads the extra fields that replace sizes and times of a record. */
const withExtra = (entry: ZipEntry, extra: Buffer): ZipEntry | undefined => {
  let { mtime, offset, packed, size } = entry
  let needs64 = size === LIMIT_32 || packed === LIMIT_32 || offset === LIMIT_32
  for (let at = 0; at + 4 <= extra.length; ) {
    const field = extra.subarray(at + 4, at + 4 + extra.readUInt16LE(at + 2))
    const id = extra.readUInt16LE(at)
    at += 4 + extra.readUInt16LE(at + 2)
    if (id === 0x5455 && field.length >= 5 && ((field[0] ?? 0) & 1) === 1) mtime = field.readInt32LE(1)
    if (id !== 1 || !needs64) continue
    needs64 = false
    let next = 0
    const wide = (value: number): number => {
      if (value !== LIMIT_32) return value
      const read = next + 8 > field.length ? undefined : safe(field.readBigUInt64LE(next))
      next += 8
      return read ?? Number.NaN
    }
    size = wide(size)
    packed = wide(packed)
    offset = wide(offset)
  }
  return Number.isNaN(size + packed + offset) ? undefined : { ...entry, mtime, offset, packed, size }
}

const dosTime = (time: number, date: number): number =>
  Date.UTC(
    (date >> 9) + 1980,
    ((date >> 5) & 15) - 1,
    date & 31,
    time >> 11,
    (time >> 5) & 63,
    (time & 31) * 2
  ) / 1000

/** Reads the record at the beginning of some bytes; undefined if they do not hold all of it, or it is damaged. */
export const zipRecord = (bytes: Buffer): ZipEntry | undefined => {
  if (bytes.length < RECORD || bytes.readUInt32LE(0) !== 0x0201_4b50) return undefined
  const nameEnd = RECORD + bytes.readUInt16LE(28)
  const extraEnd = nameEnd + bytes.readUInt16LE(30)
  const length = extraEnd + bytes.readUInt16LE(32)
  if (bytes.length < length) return undefined
  const isUnix = UNIX.has(bytes[5] ?? 0)
  const mode = bytes.readUInt32LE(38) >>> 16
  const raw = Buffer.from(bytes.subarray(RECORD, nameEnd))
  // Programs for Windows wrote `\`.
  if (!isUnix) for (const [at, byte] of raw.entries()) if (byte === 0x5c) raw[at] = 0x2f
  return withExtra(
    {
      name: raw,
      flags: bytes.readUInt16LE(8),
      method: bytes.readUInt16LE(10),
      crc: bytes.readUInt32LE(16),
      packed: bytes.readUInt32LE(20),
      size: bytes.readUInt32LE(24),
      offset: bytes.readUInt32LE(42),
      mode: isUnix && mode !== 0 ? mode : undefined,
      mtime: dosTime(bytes.readUInt16LE(12), bytes.readUInt16LE(14)),
      length
    },
    bytes.subarray(nameEnd, extraEnd)
  )
}

/** Returns the kind of an entry, or why it is refused. */
export const zipKind = ({ flags, method, mode = 0, name, packed, size }: ZipEntry) => {
  const refused = (why: string, hint?: string) => ({ why, hint })
  if ((flags & ENCRYPTED) !== 0) return refused("it is encrypted", "Pack it again without a password.")
  if (method !== 0 && method !== 8)
    return refused(`it has compression method ${method}`, "Pack it again with deflate, as zip does.")
  if (method === 0 && packed !== size) return refused("its sizes differ")
  const type = mode & S_IFMT
  const isFolder = name.at(-1) === 0x2f
  if (type !== 0 && type !== S_IFREG && type !== S_IFDIR && type !== S_IFLNK)
    return refused("it is a pipe, a socket or a device")
  if (isFolder || type === S_IFDIR)
    return size === 0 ? ("folder" as const) : refused("it is a folder with contents")
  if (type !== S_IFLNK) return "file" as const
  return size <= LONGEST_TARGET ? ("link" as const) : refused("it is a link with a long target")
}
