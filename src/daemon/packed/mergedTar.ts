/** The tar of all files of a server, made of the archive of what it has written and the one of its base, and its compression. */
import { constants, createZstdCompress } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Cause, Effect, Option, type Pull, Scope, Stream } from "effect"
import type { PackedEntry } from "../../contract/domain/Backup.ts"
import { nameBytes } from "../../contract/domain/Files.ts"
import { type ArchiveEntry, TAR_END, tarBytes, tarHeader, tarPadding } from "../archives/format.ts"
import { type ArchiveError, damaged } from "../archives/member.ts"
import { entryOf } from "./lines.ts"
import { between, differs, digestChecked, until } from "./pieces.ts"

type Bytes = Stream.Stream<Uint8Array, ArchiveError>

const CHUNK = 256 * 1024

/** Returns bytes of a tar from a byte at or before `at` on. */
export type OpenTar = (at: number) => { readonly from: number; readonly bytes: Bytes }

/** Reads a tar from its first wanted file on, and returns the contents of its files in their order. */
const makeReader = Effect.fnUntraced(function* (open: OpenTar) {
  const scope = yield* Effect.scope
  let pull: Pull.Pull<readonly [Uint8Array, ...Array<Uint8Array>], ArchiveError> | undefined
  let rest: Uint8Array = Buffer.alloc(0)
  let position = 0
  const take = (most: number) => {
    const piece = rest.subarray(0, most)
    rest = rest.subarray(piece.length)
    position += piece.length
    return piece
  }
  const next = Effect.fnUntraced(function* (at: number) {
    if (pull === undefined) {
      const { bytes, from } = open(at)
      position = from
      pull = yield* Scope.provide(Stream.toPull(bytes), scope)
    }
    const chunks = yield* Effect.catchIf(Effect.asSome(pull), Cause.isDone, () => Effect.succeedNone)
    if (Option.isNone(chunks)) return yield* differs("the archive of the backup", "it ends too early")
    rest = chunks.value.length === 1 ? chunks.value[0] : Buffer.concat(chunks.value)
  })
  return (at: number, size: number): Bytes =>
    Stream.unfold(
      size,
      Effect.fnUntraced(function* (left) {
        if (left === 0) return undefined
        if (position > at + size - left)
          return yield* differs("the index of the backup", "its files are in another order")
        for (;;) {
          take(at + size - left - position)
          if (rest.length > 0) break
          yield* next(at)
        }
        const piece = take(left)
        return [piece, left - piece.length] as const
      })
    )
})

const NONE = Buffer.alloc(0)

const memberOf = ({ mode, mtime, path, size = 0, target = "", type }: PackedEntry): ArchiveEntry => ({
  name: path === "/" ? Buffer.from(".") : Buffer.from(nameBytes(`.${path}`)),
  kind: type,
  mode,
  mtime,
  size,
  target: type === "link" ? Buffer.from(nameBytes(target)) : NONE
})

/** Returns the bytes that an entry has in a tar. */
export const bytesInTar = (entry: PackedEntry): number => tarBytes(memberOf(entry))

/** The lines of all files, and the two tars. */
export interface MergedParts {
  readonly lines: Stream.Stream<ReadonlyArray<string>, ArchiveError>
  readonly open: OpenTar
  /** Bytes of the tar of the base. The files of the other one lie behind them. */
  readonly baseBytes: number
  /** The first byte that is wanted. Files before it are not read. */
  readonly from?: number
}

/** Returns the tar of all files. It fails before the last byte of a file with another SHA-256 than its entry has. */
export const mergedTar = ({ baseBytes, from = 0, lines, open }: MergedParts): Bytes =>
  Stream.unwrap(
    Effect.gen(function* () {
      const [ofBase, ofOwn] = [yield* makeReader(open), yield* makeReader(open)]
      let position = 0
      const wanted = (length: number, bytes: () => Bytes): Bytes => {
        const start = position
        position += length
        if (position <= from) return Stream.empty
        return start >= from ? bytes() : between(bytes(), from - start, length)
      }
      const contents = ({ at = 0, path, sha256, size = 0 }: PackedEntry) =>
        digestChecked((at < baseBytes ? ofBase : ofOwn)(at, size), `${path} of the backup`, sha256)
      const entries = Stream.mapEffect(Stream.flattenIterable(lines), entryOf)
      const members = Stream.flatMap(entries, (entry) => {
        const member = memberOf(entry)
        return wanted(tarBytes(member), () => {
          const header = Stream.make(tarHeader(member))
          if (entry.type !== "file") return header
          return Stream.concat(Stream.concat(header, contents(entry)), Stream.make(tarPadding(member.size)))
        })
      })
      const end = Stream.suspend(() => wanted(TAR_END.length, () => Stream.make(TAR_END)))
      return Stream.concat(members, end)
    })
  )

/** The most bytes of a block of zstd, and the bytes of its head. */
const BLOCK = 128 * 1024
const BLOCK_HEAD = 3
/** The beginning of a frame of zstd: a window of one block, neither the size nor a checksum. */
const FRAME_HEAD = Buffer.of(0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38)

/** Returns the size of {@link storedZstd}. @param tar bytes of the tar */
export const storedBytes = (tar: number): number =>
  FRAME_HEAD.length + Math.ceil(tar / BLOCK) * BLOCK_HEAD + tar

interface StoredRange {
  readonly start: number
  /** The last byte, included. */
  readonly end: number
  /** Bytes of the whole archive. */
  readonly size: number
}

/**
 * Returns bytes of a tar as `tar.zst` whose blocks are stored as they are: its size and its ranges depend on nothing but the
 * tar. @param tarFrom returns the bytes of the tar from one on
 */
export const storedZstd = (tarFrom: (from: number) => Bytes, { end, size, start }: StoredRange): Bytes =>
  Stream.suspend(() => {
    const first = Math.max(0, Math.floor((start - FRAME_HEAD.length) / (BLOCK_HEAD + BLOCK)))
    /** The next byte of the archive. */
    let at = first === 0 ? 0 : FRAME_HEAD.length + first * (BLOCK_HEAD + BLOCK)
    const from = at
    let left = 0
    const blocks = Stream.map(tarFrom(first * BLOCK), (chunk) => {
      const pieces: Array<Uint8Array> = []
      const add = (piece: Uint8Array) => {
        pieces.push(piece)
        at += piece.length
      }
      if (at === 0) add(FRAME_HEAD)
      for (let rest = chunk; rest.length > 0; ) {
        if (left === 0) {
          left = Math.min(BLOCK, size - at - BLOCK_HEAD)
          const isLast = at + BLOCK_HEAD + left >= size
          const head = Buffer.alloc(BLOCK_HEAD)
          head.writeUIntLE(left * 8 + (isLast ? 1 : 0), 0, BLOCK_HEAD)
          add(head)
        }
        const piece = rest.subarray(0, left)
        rest = rest.subarray(piece.length)
        left -= piece.length
        add(piece)
      }
      return Buffer.concat(pieces)
    })
    return until(blocks, start - from, end + 1 - from)
  })

/** Compresses bytes. */
export const zstdOf = (tar: Bytes): Bytes =>
  NodeStream.pipeThroughDuplex(tar, {
    evaluate: () =>
      createZstdCompress({
        chunkSize: CHUNK,
        params: { [constants.ZSTD_c_compressionLevel]: 2, [constants.ZSTD_c_checksumFlag]: 1 }
      }),
    onError: (cause) => damaged(cause instanceof Error ? cause.message : "it cannot be compressed")
  })
