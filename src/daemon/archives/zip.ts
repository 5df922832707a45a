/** Members of zip archives, in the order of their directory. */
import { crc32, createInflateRaw } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Stream } from "effect"
import {
  type ArchiveError,
  bytesBetween,
  damaged,
  type Member,
  MOST_MEMBERS,
  refuseMember,
  shortened,
  shownMember,
  tooManyMembers,
  type UseMember,
  whyBomb
} from "./member.ts"
import {
  LOCAL_HEADER,
  ZIP_TAIL,
  type ZipEnd,
  type ZipEntry,
  zipEnd,
  zipKind,
  zipRecord
} from "./zipDirectory.ts"

export interface ArchiveFile {
  readonly size: number
  /** Returns the bytes at an offset, fewer at the end. */
  readonly read: (at: number, length: number) => Effect.Effect<Buffer, ArchiveError>
}

const CHUNK = 256 * 1024

const forEachRecord = Effect.fnUntraced(function* (
  file: ArchiveFile,
  { entries, length, offset }: ZipEnd,
  use: (entry: ZipEntry) => Effect.Effect<void, ArchiveError>
) {
  let bytes: Buffer = Buffer.alloc(0)
  let next = offset
  const end = offset + length
  for (let index = 0; index < entries; index++) {
    let entry = zipRecord(bytes)
    if (entry === undefined && next < end) {
      const more = yield* file.read(next, Math.min(CHUNK, end - next))
      next += more.length
      bytes = Buffer.concat([bytes, more])
      entry = zipRecord(bytes)
    }
    if (entry === undefined) return yield* damaged(`record ${index + 1} of its directory cannot be read`)
    bytes = bytes.subarray(entry.length)
    yield* use(entry)
  }
  if (bytes.length > 0 || next < end) return yield* damaged("its directory has more records than it says")
})

const overlaps = (name: Buffer) =>
  refuseMember(
    name,
    "it overlaps another entry",
    "Pack the archive again: this one is made to fill the disk."
  )

/** Checks all entries before the first one is unpacked. Returns where they begin, in order. */
const checkEntries = Effect.fnUntraced(function* (file: ArchiveFile, end: ZipEnd) {
  const offsets = new Float64Array(end.entries)
  let index = 0
  let unpacked = 0
  yield* forEachRecord(file, end, (entry) => {
    const kind = zipKind(entry)
    if (typeof kind === "object") return refuseMember(entry.name, kind.why, kind.hint)
    offsets[index++] = entry.offset
    unpacked += entry.size
    return Effect.void
  })
  offsets.sort()
  const bomb = whyBomb(end.offset, unpacked)
  return bomb === undefined ? offsets : yield* bomb
})

/** Returns the index of a number in ascending ones; -1 if it is not there exactly once. */
const onlyIndex = (numbers: Float64Array, wanted: number): number => {
  let low = 0
  let high = numbers.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((numbers[middle] ?? 0) < wanted) low = middle + 1
    else high = middle
  }
  return numbers[low] === wanted && numbers[low + 1] !== wanted ? low : -1
}

/** Returns the bytes of an entry as they are stored, and checks its local header against the directory. */
const storedBytes = Effect.fnUntraced(function* (
  file: ArchiveFile,
  { method, name, offset, packed }: ZipEntry,
  limit: number,
  onRead: (bytes: number) => void
) {
  const header = yield* file.read(offset, LOCAL_HEADER)
  if (header.length < LOCAL_HEADER || header.readUInt32LE(0) !== 0x0403_4b50)
    return yield* damaged(`there is no entry ${shownMember(name)} where its directory says`)
  const nameLength = header.readUInt16LE(26)
  const start = offset + LOCAL_HEADER + nameLength + header.readUInt16LE(28)
  const local = yield* file.read(offset + LOCAL_HEADER, nameLength)
  // `\` of programs for Windows is `/` in the directory.
  const isSame = local.length === name.length && local.every((byte, at) => byte === name[at] || byte === 0x5c)
  if (!isSame || header.readUInt16LE(8) !== method)
    return yield* refuseMember(name, "its header and the directory of the archive differ")
  const end = start + packed
  if (end > limit) return yield* overlaps(name)
  return Stream.tap(bytesBetween(start, end, file.read, shortened), (bytes) =>
    Effect.sync(() => onRead(bytes.length))
  )
})

/** Returns the contents of an entry; they fail unless size and checksum are those of the directory. */
const contentsOf = (
  { crc, method, name, size }: ZipEntry,
  stored: Stream.Stream<Uint8Array, ArchiveError>
): Stream.Stream<Uint8Array, ArchiveError> => {
  let sum = 0
  let bytes = 0
  const differs = refuseMember(
    name,
    "its contents are not those that the directory describes",
    "Pack it again."
  )
  const plain =
    method === 0
      ? stored
      : NodeStream.pipeThroughDuplex(stored, { evaluate: () => createInflateRaw(), onError: () => differs })
  const noted = Stream.tap(plain, (chunk) => {
    bytes += chunk.length
    sum = crc32(chunk, sum)
    return bytes > size ? differs : Effect.void
  })
  const checked = Effect.suspend(() => (bytes === size && sum === crc ? Effect.void : Effect.fail(differs)))
  return Stream.concat(noted, Stream.drain(Stream.fromEffect(checked)))
}

/** Uses each member of a zip archive. @param onRead gets the bytes of the archive as they are read */
export const readZip = Effect.fnUntraced(function* (
  file: ArchiveFile,
  use: UseMember,
  onRead: (bytes: number) => void
): Effect.fn.Return<void, ArchiveError> {
  const tail = yield* file.read(Math.max(0, file.size - ZIP_TAIL), Math.min(file.size, ZIP_TAIL))
  const end = zipEnd(tail, file.size)
  if (typeof end === "string") return yield* damaged(end)
  if (end.entries > MOST_MEMBERS) return yield* tooManyMembers()
  const offsets = yield* checkEntries(file, end)
  yield* forEachRecord(
    file,
    end,
    Effect.fnUntraced(function* (entry) {
      const kind = zipKind(entry)
      const { mode, mtime, name, offset, size } = entry
      if (typeof kind === "object") return yield* refuseMember(name, kind.why, kind.hint)
      const at = onlyIndex(offsets, offset)
      if (at === -1) return yield* overlaps(name)
      const stored = yield* storedBytes(file, entry, offsets[at + 1] ?? end.offset, onRead)
      const contents = contentsOf(entry, stored)
      const member: Member = {
        name,
        kind,
        mode: mode === undefined ? undefined : mode & 0o7777,
        mtime,
        size,
        target: kind === "link" ? Buffer.concat(yield* Stream.runCollect(contents)) : Buffer.alloc(0),
        contents: kind === "file" ? contents : Stream.empty
      }
      yield* use(member)
    })
  )
})
