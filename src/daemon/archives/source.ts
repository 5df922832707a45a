/** The bytes of an archive that is unpacked: a file of the server, or the body of a request as it arrives. */
import { constants } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { createGunzip, createZstdDecompress, constants as zlib } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Cause, Deferred, Effect, Exit, Option, type Scope, Stream } from "effect"
import type { ArchiveFormat } from "../../contract/domain/Files.ts"
import { type FileError, FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { io, open, within, writeAll } from "../disk/safePath.ts"
import {
  type ArchiveError,
  bytesBetween,
  damaged,
  shortened,
  type UseMember,
  unprocessable,
  whyBomb
} from "./member.ts"
import { readTar } from "./tar.ts"
import { type ArchiveFile, readZip } from "./zip.ts"

type Bytes = Stream.Stream<Uint8Array, ArchiveError>

const CHUNK = 256 * 1024
/** A tar header, after which all formats are told apart. */
const HEAD = 512
/** The window of zstd takes this much memory, as a power of two: 32 MiB. `zstd -19` takes 8 MiB. */
const LARGEST_WINDOW = 25
/** How long a task waits for the first byte of its archive. */
const UNSENT = "60 seconds"

const interrupted = new FileRefused({
  status: 409,
  detail: "the archive was not unpacked: its transfer or its operation was ended",
  hint: "Send the archive again."
})

const taken = new FileRefused({
  status: 409,
  detail: "the archive of the operation arrives already",
  hint: "Wait for its end, then send the archive again."
})

const unsent = new FileRefused({
  status: 409,
  detail: "no byte of the archive arrived for 60 s",
  hint: "Send the archive again."
})

/** The archive of a task that arrives as the body of a request. */
export class Arrival {
  readonly #given = Deferred.makeUnsafe<Bytes, FileRefused>()
  readonly #received = Deferred.makeUnsafe<void, FileError>()
  readonly #lost = Deferred.makeUnsafe<never, FileRefused>()
  /** Whether the transfer broke: the bytes failed, or their request ended before the last one. */
  isLost = false

  /** The bytes, once a request sends them. */
  readonly bytes: Effect.Effect<Bytes, FileRefused> = Deferred.await(this.#given).pipe(
    Effect.timeoutOrElse({ duration: UNSENT, orElse: () => Effect.fail(unsent) })
  )

  /** Notes that the last byte has arrived, and that nothing of it is refused so far. */
  readonly received: Effect.Effect<void> = Effect.asVoid(Deferred.succeed(this.#received, undefined))

  /** Gives the bytes to the task; returns once they are received, or fails as the task does. */
  give(bytes: Stream.Stream<Uint8Array, ArchiveError>): Effect.Effect<void, FileError> {
    return Effect.gen({ self: this }, function* () {
      const noted = Stream.tapError(bytes, () => this.#lose)
      const bounded = Stream.interruptWhen(noted, Deferred.await(this.#lost))
      const isFirst = yield* Deferred.succeed(this.#given, bounded)
      if (!isFirst) return yield* taken
      yield* Effect.onInterrupt(Deferred.await(this.#received), () => this.left)
    })
  }

  readonly #lose = Effect.sync(() => {
    this.isLost = true
  })

  /** Notes the end of the request, also one that has not given its bytes yet. */
  readonly left: Effect.Effect<void> = Effect.suspend(() => {
    const fail = Effect.andThen(
      Deferred.fail(this.#given, interrupted),
      Deferred.fail(this.#lost, interrupted)
    )
    return Effect.andThen(this.#lose, fail)
  })

  /** Notes the end of the task. */
  readonly ended = (exit: Exit.Exit<unknown, FileError>): Effect.Effect<void> => {
    if (Exit.isSuccess(exit)) return this.received
    const error = Option.getOrElse(Exit.findErrorOption(exit), () => interrupted)
    return Effect.asVoid(Deferred.fail(this.#received, error))
  }
}

const startsWith = (head: Buffer, ...bytes: ReadonlyArray<number>) =>
  bytes.every((byte, at) => head[at] === byte)

const otherFormats: ReadonlyArray<readonly [string, ReadonlyArray<number>]> = [
  ["7z", [0x37, 0x7a, 0xbc, 0xaf]],
  ["rar", [0x52, 0x61, 0x72, 0x21]],
  ["xz", [0xfd, 0x37, 0x7a, 0x58, 0x5a]],
  ["bzip2", [0x42, 0x5a, 0x68]]
]

/** Returns whether the checksum of a block is that of a tar header. */
const isTarHeader = (head: Buffer): boolean => {
  if (head.length < HEAD) return false
  if (head.every((byte) => byte === 0)) return true
  const sum = head.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 0x20 : byte), 0)
  return Number.parseInt(head.toString("latin1", 148, 156).replace(/^[\0 ]+/, ""), 8) === sum
}

/** Returns the format of an archive by its first bytes. @error FileRefused 422 it is none */
const formatOf = (
  head: Buffer,
  given: ArchiveFormat | undefined
): Effect.Effect<ArchiveFormat, FileRefused> => {
  const isSkippable = ((head[0] ?? 0) & 0xf0) === 0x50 && startsWith(head.subarray(1), 0x2a, 0x4d, 0x18)
  const found: ArchiveFormat | undefined =
    startsWith(head, 0x50, 0x4b, 3, 4) || startsWith(head, 0x50, 0x4b, 5, 6)
      ? "zip"
      : startsWith(head, 0x1f, 0x8b)
        ? "tar.gz"
        : startsWith(head, 0x28, 0xb5, 0x2f, 0xfd) || isSkippable
          ? "tar.zst"
          : isTarHeader(head)
            ? "tar"
            : undefined
  if (found !== undefined && (given === undefined || given === found)) return Effect.succeed(found)
  if (found !== undefined)
    return Effect.fail(
      unprocessable(`the archive is ${found}, not ${given}`, "Correct the format, or leave it out.")
    )
  const other = otherFormats.find(([, magic]) => startsWith(head, ...magic))?.[0]
  return Effect.fail(
    unprocessable(
      head.length === 0
        ? "the archive is empty"
        : other === undefined
          ? "the file is no archive"
          : `the archive is ${other}, which is not unpacked`,
      "Pack it as zip, tar, tar.gz or tar.zst."
    )
  )
}

/** Returns the first bytes of a stream, and the whole stream. */
const peeked = Effect.fnUntraced(function* (bytes: Bytes) {
  const pull = yield* Stream.toPull(bytes)
  const first: Array<Uint8Array> = []
  let length = 0
  const more = Effect.map(pull, (chunks) => {
    for (const chunk of chunks) {
      first.push(chunk)
      length += chunk.length
    }
    return true
  }).pipe(Effect.catchIf(Cause.isDone, () => Effect.succeed(false)))
  while (length < HEAD && (yield* more));
  const head = Buffer.concat(first)
  return {
    head: head.subarray(0, HEAD),
    bytes: Stream.concat(Stream.make<[Uint8Array]>(head), Stream.fromPull(Effect.succeed(pull)))
  }
})

export const decompressed = (format: ArchiveFormat, bytes: Bytes): Bytes => {
  if (format === "tar") return bytes
  return NodeStream.pipeThroughDuplex(bytes, {
    evaluate: () =>
      format === "tar.gz"
        ? createGunzip({ chunkSize: CHUNK })
        : createZstdDecompress({
            chunkSize: CHUNK,
            params: { [zlib.ZSTD_d_windowLogMax]: LARGEST_WINDOW }
          }),
    onError: (cause) => damaged(cause instanceof Error ? cause.message : "it cannot be decompressed")
  })
}

export const archiveFile = Effect.fnUntraced(function* (path: string, handle: FileHandle) {
  const { size } = yield* io(path, () => handle.stat())
  return {
    size,
    read: Effect.fnUntraced(function* (at, length) {
      const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, size - at)))
      let done = 0
      while (done < bytes.length) {
        const from = done
        const { bytesRead } = yield* io(path, () => handle.read(bytes, from, bytes.length - from, at + from))
        if (bytesRead === 0) break
        done += bytesRead
      }
      return bytes.subarray(0, done)
    })
  } satisfies ArchiveFile
})

const SPOOL = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

interface Spool {
  readonly folder: FileHandle
  readonly name: Buffer
}

/** Writes the bytes of a zip archive to a hidden file: its directory is at its end. */
const spooled = Effect.fnUntraced(function* (
  bytes: Bytes,
  { folder, name }: Spool,
  take: (bytes: number, entries: number) => Effect.Effect<void, FileRefused | IoError>
) {
  const path = "the archive"
  yield* take(0, 1)
  const handle = yield* open(path, within(folder, name), SPOOL, 0o600)
  yield* Stream.runForEach(bytes, (chunk) =>
    Effect.andThen(take(chunk.length, 0), writeAll(path, handle, chunk, null))
  )
  return yield* archiveFile(path, handle)
})

export interface Reading {
  readonly format: ArchiveFormat | undefined
  /** Where a zip archive that arrives is kept meanwhile. */
  readonly spool: Spool
  readonly take: (bytes: number, entries: number) => Effect.Effect<void, FileRefused | IoError>
  /** Gets the bytes of the archive that are read, and all of them if they are known. */
  readonly onRead: (read: number, total?: number) => void
}

/** Uses each member of an archive. @param from a file, or the bytes of a body */
export const readArchive = Effect.fnUntraced(function* (
  from: ArchiveFile | Arrival,
  { format: given, onRead, spool, take }: Reading,
  use: UseMember
): Effect.fn.Return<void, ArchiveError, Scope.Scope> {
  let packed = 0
  const read = (bytes: number) => {
    packed += bytes
    onRead(packed)
  }
  const noted = Stream.tap(
    from instanceof Arrival ? yield* from.bytes : bytesBetween(0, from.size, from.read, shortened),
    (chunk) => Effect.sync(() => read(chunk.length))
  )
  const { bytes, head } = yield* peeked(noted)
  const format = yield* formatOf(head, given)
  if (format === "zip") {
    if (!(from instanceof Arrival)) {
      packed = 0
      return yield* readZip(from, use, read)
    }
    const file = yield* spooled(bytes, spool, take)
    onRead(packed, 2 * packed)
    yield* from.received
    return yield* readZip(file, use, read)
  }
  let unpacked = 0
  const bounded = Stream.tap(decompressed(format, bytes), (chunk) => {
    unpacked += chunk.length
    return whyBomb(packed, unpacked) ?? Effect.void
  })
  yield* readTar(bounded, use)
}, Effect.scoped)
