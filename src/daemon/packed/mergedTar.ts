/** The tar of all files of a server, made of the archive of what it has written and the one of its base. */
import { constants, createZstdCompress } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Cause, Effect, Option, Stream } from "effect"
import type { PackedEntry } from "../../contract/domain/Backup.ts"
import { nameBytes } from "../../contract/domain/Files.ts"
import { TAR_END, tarHeader, tarPadding } from "../archives/format.ts"
import { type ArchiveError, damaged } from "../archives/member.ts"
import { entryOf } from "./lines.ts"
import { differs, digestChecked } from "./pieces.ts"

type Bytes = Stream.Stream<Uint8Array, ArchiveError>

const CHUNK = 256 * 1024

/** Reads a tar from its beginning to its end, and returns the contents of its files in their order. */
const makeReader = Effect.fnUntraced(function* (tar: Bytes) {
  const pull = yield* Stream.toPull(tar)
  let rest: Uint8Array = Buffer.alloc(0)
  let position = 0
  const take = (most: number) => {
    const piece = rest.subarray(0, most)
    rest = rest.subarray(piece.length)
    position += piece.length
    return piece
  }
  const next = Effect.gen(function* () {
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
          yield* next
        }
        const piece = take(left)
        return [piece, left - piece.length] as const
      })
    )
})

const NONE = Buffer.alloc(0)

const headerOf = ({ mode, mtime, path, size = 0, target = "", type }: PackedEntry) =>
  tarHeader({
    name: path === "/" ? Buffer.from(".") : Buffer.from(nameBytes(`.${path}`)),
    kind: type,
    mode,
    mtime,
    size,
    target: type === "link" ? Buffer.from(nameBytes(target)) : NONE
  })

/** The lines of all files, and the two tars. */
export interface MergedParts {
  readonly lines: Stream.Stream<ReadonlyArray<string>, ArchiveError>
  readonly base: Bytes
  readonly own: Bytes
  /** Bytes of the tar of the base. The files of the other one lie behind them. */
  readonly baseBytes: number
}

/** Returns the tar of all files. It fails before the last byte of a file with another SHA-256 than its entry has. */
export const mergedTar = ({ base, baseBytes, lines, own }: MergedParts): Bytes =>
  Stream.unwrap(
    Effect.gen(function* () {
      const [ofBase, ofOwn] = [yield* makeReader(base), yield* makeReader(own)]
      const contents = ({ at = 0, path, sha256, size = 0 }: PackedEntry) =>
        digestChecked(
          at < baseBytes ? ofBase(at, size) : ofOwn(at - baseBytes, size),
          `${path} of the backup`,
          sha256
        )
      const entries = Stream.mapEffect(Stream.flattenIterable(lines), entryOf)
      const members = Stream.flatMap(entries, (entry) => {
        const header = Stream.make(headerOf(entry))
        if (entry.type !== "file") return header
        return Stream.concat(Stream.concat(header, contents(entry)), Stream.make(tarPadding(entry.size ?? 0)))
      })
      return Stream.concat(members, Stream.make(TAR_END))
    })
  )

/** Compresses a tar. */
export const zstdOf = (tar: Bytes): Bytes =>
  NodeStream.pipeThroughDuplex(tar, {
    evaluate: () =>
      createZstdCompress({
        chunkSize: CHUNK,
        params: { [constants.ZSTD_c_compressionLevel]: 2, [constants.ZSTD_c_checksumFlag]: 1 }
      }),
    onError: (cause) => damaged(cause instanceof Error ? cause.message : "it cannot be compressed")
  })
