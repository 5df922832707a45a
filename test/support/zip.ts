/** Zip archives, built byte by byte so that they can be invalid. */
import { crc32, deflateRawSync } from "node:zlib"

export interface ZipMember {
  readonly name: string | Buffer
  readonly content?: string | Buffer
  readonly flags?: number
  /** 0: stored, 8: deflated. */
  readonly method?: number
  /** As in `stat`; default: none, as of programs for DOS. */
  readonly mode?: number
  /** What the directory says in place of what is true. */
  readonly size?: number
  readonly crc?: number
  readonly offset?: number
  /** The name in the local header. */
  readonly localName?: string
}

const bytesOf = (value: string | Buffer) => (typeof value === "string" ? Buffer.from(value) : value)

/** Returns an archive of members, with a comment at its end. */
export const zip = (
  members: ReadonlyArray<ZipMember>,
  { entries = members.length, comment = "" } = {}
): Buffer => {
  const parts: Array<Buffer> = []
  const directory: Array<Buffer> = []
  let at = 0
  for (const { content = "", flags = 0x800, method = 8, mode, ...rest } of members) {
    const name = bytesOf(rest.name)
    const localName = bytesOf(rest.localName ?? name)
    const plain = bytesOf(content)
    const packed = method === 8 ? deflateRawSync(plain) : plain
    const header = Buffer.alloc(30)
    header.writeUInt32LE(0x0403_4b50, 0)
    header.writeUInt16LE(20, 4)
    header.writeUInt16LE(flags, 6)
    header.writeUInt16LE(method, 8)
    header.writeUInt32LE(0x5821_0000, 10)
    header.writeUInt32LE(rest.crc ?? crc32(plain), 14)
    header.writeUInt32LE(packed.length, 18)
    header.writeUInt32LE(rest.size ?? plain.length, 22)
    header.writeUInt16LE(localName.length, 26)
    parts.push(header, localName, packed)
    const record = Buffer.alloc(46)
    record.writeUInt32LE(0x0201_4b50, 0)
    record.writeUInt16LE(((mode === undefined ? 0 : 3) << 8) | 20, 4)
    header.copy(record, 6, 4, 30)
    record.writeUInt16LE(name.length, 28)
    record.writeUInt32LE(((mode ?? 0) << 16) >>> 0, 38)
    record.writeUInt32LE(rest.offset ?? at, 42)
    directory.push(record, name)
    at += 30 + localName.length + packed.length
  }
  const length = directory.reduce((sum, part) => sum + part.length, 0)
  const isLarge = entries > 0xffff
  const large = Buffer.alloc(isLarge ? 56 + 20 : 0)
  if (isLarge) {
    large.writeUInt32LE(0x0606_4b50, 0)
    large.writeBigUInt64LE(44n, 4)
    large.writeBigUInt64LE(BigInt(entries), 24)
    large.writeBigUInt64LE(BigInt(entries), 32)
    large.writeBigUInt64LE(BigInt(length), 40)
    large.writeBigUInt64LE(BigInt(at), 48)
    large.writeUInt32LE(0x0706_4b50, 56)
    large.writeBigUInt64LE(BigInt(at + length), 64)
    large.writeUInt32LE(1, 72)
  }
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x0605_4b50, 0)
  end.writeUInt16LE(Math.min(entries, 0xffff), 8)
  end.writeUInt16LE(Math.min(entries, 0xffff), 10)
  end.writeUInt32LE(length, 12)
  end.writeUInt32LE(at, 16)
  end.writeUInt16LE(comment.length, 20)
  return Buffer.concat([...parts, ...directory, large, end, Buffer.from(comment)])
}
