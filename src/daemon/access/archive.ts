/** Files and folders as an archive, which is made while it is read (spec 10.3). */
import type { FileHandle } from "node:fs/promises"
import * as fs from "node:fs/promises"
import { crc32, createDeflateRaw, createGzip, createZstdCompress } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { type Cause, Effect, Option, Queue, type Scope, Stream } from "effect"
import type { ArchiveFormat } from "../../contract/domain/Files.ts"
import { MOST_PACKED } from "../../contract/domain/FileTask.ts"
import {
  type ArchiveEntry,
  TAR_END,
  tarHeader,
  tarPadding,
  zipDescriptor,
  zipDirectoryEntry,
  zipEnd,
  zipHeader
} from "../archives/format.ts"
import { orOn, toIoError } from "../disk/fsio.ts"
import { io, PERMISSIONS, within } from "../disk/safePath.ts"
import { type AccessError, unprocessable } from "./refused.ts"
import { bytesOf, type Site } from "./Site.ts"
import { type Visible, walkVisible } from "./visible.ts"

const CHUNK = 256 * 1024
/** Chunks that wait for their reader. */
const WAITING = 4
/** The directory of a zip archive is in memory until its end: entries, and their bytes. */
const MOST_ZIPPED = 500_000
const MOST_DIRECTORY = 64 * 1024 * 1024

type OnRead = (bytes: number) => void

type Emit = (bytes: Uint8Array) => Effect.Effect<void>

/** Returns the bytes of a file, exactly as many as were announced: a file may become shorter, or longer. */
const contentsOf = (
  path: string,
  handle: FileHandle,
  size: number,
  onRead: OnRead
): Stream.Stream<Uint8Array, AccessError> =>
  Stream.unfold(0, (at): Effect.Effect<readonly [Uint8Array, number] | undefined, AccessError> => {
    if (at >= size) return Effect.succeed(undefined)
    const chunk = Buffer.alloc(Math.min(CHUNK, size - at))
    return Effect.map(
      io(path, () => handle.read(chunk, 0, chunk.length, at)),
      ({ bytesRead }) => {
        const bytes = bytesRead === 0 ? chunk : chunk.subarray(0, bytesRead)
        onRead(bytes.length)
        return [bytes, at + bytes.length] as const
      }
    )
  })

/** Writes one format. `contents` has exactly `size` bytes. */
interface Writer {
  readonly add: (
    entry: ArchiveEntry,
    contents: Stream.Stream<Uint8Array, AccessError>
  ) => Effect.Effect<void, AccessError>
  readonly end: Effect.Effect<void>
}

const tarWriter = (emit: Emit): Writer => ({
  add: Effect.fnUntraced(function* (entry, contents) {
    yield* emit(tarHeader(entry))
    yield* Stream.runForEach(contents, emit)
    if (entry.size % 512 !== 0) yield* emit(tarPadding(entry.size))
  }),
  end: emit(TAR_END)
})

const S_IFREG = 0o100000
const S_IFDIR = 0o040000
const S_IFLNK = 0o120000
const kinds = { file: S_IFREG, folder: S_IFDIR, link: S_IFLNK } as const

const duplexError = (cause: unknown) => toIoError("compress an archive", cause)

export const zipWriter = (emit: Emit): Writer => {
  let offset = 0
  let held = 0
  const directory: Array<Buffer> = []
  const write = (bytes: Uint8Array) =>
    Effect.suspend(() => {
      offset += bytes.length
      return emit(bytes)
    })
  return {
    add: Effect.fnUntraced(function* (entry, contents) {
      if (directory.length >= MOST_ZIPPED) {
        return yield* unprocessable(
          `a zip archive has at most ${MOST_ZIPPED} entries here`,
          "Use the format tar.zst."
        )
      }
      if (held > MOST_DIRECTORY) {
        return yield* unprocessable(
          `the names in a zip archive have at most ${MOST_DIRECTORY / 1024 ** 2} MiB here`,
          "Use the format tar.zst."
        )
      }
      const { kind, mode } = entry
      const name = kind === "folder" ? Buffer.concat([entry.name, Buffer.from("/")]) : entry.name
      const at = offset
      const header = zipHeader(entry, name, kind === "file" ? 8 : 0)
      yield* write(header)
      const begun = offset
      let crc = 0
      let size = 0
      const noted = Stream.tap(contents, (bytes) =>
        Effect.sync(() => {
          crc = crc32(bytes, crc)
          size += bytes.length
        })
      )
      const stored =
        kind === "file"
          ? NodeStream.pipeThroughDuplex(noted, { evaluate: createDeflateRaw, onError: duplexError })
          : noted
      yield* Stream.runForEach(stored, write)
      const sums = { crc, size, stored: offset - begun }
      yield* write(zipDescriptor(sums))
      const listed = zipDirectoryEntry({ ...sums, header, name, mode: kinds[kind] | mode, offset: at })
      held += listed.length
      directory.push(listed)
    }),
    end: Effect.suspend(() => {
      const from = offset
      return Effect.andThen(
        Effect.forEach(directory, write, { discard: true }),
        Effect.suspend(() => emit(zipEnd(directory.length, offset - from, from)))
      )
    })
  }
}

/** Returns the folder that all paths have in common, whose path the names in the archive do not have. */
const commonFolder = (paths: ReadonlyArray<string>): string => {
  const [first = [], ...others] = paths.map((path) => path.split("/").slice(1, -1))
  let length = first.length
  for (const other of others) {
    let same = 0
    while (same < length && first[same] === other[same]) same++
    length = same
  }
  return first.slice(0, length).join("/")
}

const addEntry = Effect.fnUntraced(function* (
  writer: Writer,
  { at, open, path, stats }: Visible,
  { onRead, prefix }: { readonly onRead: OnRead; readonly prefix: number }
) {
  const name = Buffer.concat(
    path
      .slice(prefix)
      .split("/")
      .flatMap((part, index) => [...(index === 0 ? [] : [Buffer.from("/")]), bytesOf(part)])
  )
  // The folder of the server itself.
  if (name.length === 0) return
  const entry = {
    name,
    mode: stats.mode & PERMISSIONS,
    mtime: Math.max(0, Math.floor(stats.mtimeMs / 1000)),
    size: 0,
    target: Buffer.alloc(0)
  }
  if (stats.isDirectory()) return yield* writer.add({ ...entry, kind: "folder" }, Stream.empty)
  if (stats.isSymbolicLink() && at !== undefined) {
    const target = yield* io(path, () =>
      fs.readlink(within(at.folder, at.name), { encoding: "buffer" })
    ).pipe(
      Effect.asSome,
      // The server has removed the link, or put something else in its place.
      orOn(Option.none(), "ENOENT", "EINVAL")
    )
    if (Option.isNone(target)) return
    return yield* writer.add({ ...entry, kind: "link", target: target.value }, Stream.empty)
  }
  if (!stats.isFile()) return
  const file = yield* open
  if (Option.isNone(file)) return
  const { size } = yield* io(path, () => file.value.stat())
  yield* writer.add({ ...entry, kind: "file", size }, contentsOf(path, file.value, size, onRead))
}, Effect.scoped)

/** Zip has a link as a file with its target. */
const withTarget = (writer: Writer): Writer => ({
  ...writer,
  add: (entry, contents) =>
    writer.add(entry, entry.kind === "link" ? Stream.make<[Uint8Array]>(entry.target) : contents)
})

const writerOf = (format: ArchiveFormat, emit: Emit): Writer =>
  format === "zip" ? withTarget(zipWriter(emit)) : tarWriter(emit)

const compressed = (format: ArchiveFormat, bytes: Stream.Stream<Uint8Array, AccessError>) => {
  if (format === "tar" || format === "zip") return bytes
  return NodeStream.pipeThroughDuplex(bytes, {
    evaluate: () => (format === "tar.gz" ? createGzip() : createZstdCompress()),
    onError: duplexError
  })
}

/** The most entries that are counted before an archive is made. */
const MOST_COUNTED = 200_000

const tooMany = unprocessable("more entries than are counted", "Make the archive without its total.")

/** Returns the bytes that an archive of paths reads, or 0 if they are too many to count. */
export const bytesOfArchive = Effect.fnUntraced(function* (site: Site, paths: ReadonlyArray<string>) {
  let bytes = 0
  let entries = 0
  const add = ({ stats }: Visible) =>
    Effect.suspend(() => {
      if (stats.isFile()) bytes += stats.size
      return ++entries > MOST_COUNTED ? tooMany : Effect.void
    })
  const counted = Effect.forEach(paths, (path) => walkVisible(site, path, add), { discard: true })
  // What cannot be read is refused while the archive is made.
  return yield* Effect.match(counted, { onSuccess: () => bytes, onFailure: () => 0 })
})

/** Returns an archive of paths. Links are kept as links, and pipes, sockets and devices are left out. */
export const archiveOf = Effect.fnUntraced(function* (
  site: Site,
  { format, paths }: { readonly paths: ReadonlyArray<string>; readonly format: ArchiveFormat },
  onRead: OnRead = () => undefined
): Effect.fn.Return<Stream.Stream<Uint8Array, AccessError>, AccessError, Scope.Scope> {
  if (paths.length === 0 || paths.length > MOST_PACKED)
    return yield* unprocessable(`path: got ${paths.length} paths`, `Send 1 to ${MOST_PACKED} paths.`)
  // A path that does not exist is refused before the first byte.
  const places = yield* Effect.forEach(paths, (path) => site.existing(path))
  const common = commonFolder(places.map(({ path }) => path))
  const prefix = common === "" ? 1 : common.length + 2
  const queue = yield* Queue.bounded<Uint8Array, AccessError | Cause.Done>(WAITING)
  const writer = writerOf(format, (bytes) => Effect.asVoid(Queue.offer(queue, bytes)))
  const made = Effect.forEach(
    places,
    ({ path }) => walkVisible(site, path, (entry) => addEntry(writer, entry, { onRead, prefix })),
    { discard: true }
  )
  yield* Effect.andThen(made, writer.end).pipe(
    Effect.matchCauseEffect({
      onSuccess: () => Queue.end(queue),
      onFailure: (cause) => Queue.failCause(queue, cause)
    }),
    Effect.forkScoped
  )
  return compressed(format, Stream.fromQueue(queue))
})
