/** Packs the files of a server into a target: tar, zstd, parts. Nothing is stored beside the parts (spec 12.3). */
import { createHash } from "node:crypto"
import { fstatSync, read, type Stats } from "node:fs"
import { createZstdCompress } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Queue, Semaphore } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { pathPatterns } from "../access/patterns.ts"
import { type AccessError, unprocessable } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { type ArchiveEntry, TAR_END, tarHeader, tarPadding } from "../archives/format.ts"
import { type IoError, ioSync, toIoError } from "../disk/fsio.ts"
import { PERMISSIONS } from "../disk/safePath.ts"
import type { IndexEntry } from "./manifest.ts"
import { storeParts } from "./parts.ts"
import type { BackupTarget } from "./target.ts"
import { called, hasChanged, type Walked, walkServer } from "./walk.ts"

/** The beginning of names in the archive: `./`. */
const BELOW = Buffer.of(0x2e, 0x2f)
const CHUNK = 256 * 1024
/** Chunks that are filled or compressed at a time. */
const CHUNKS = 3

/** Bytes on their way to a target, compressed in chunks of one size. New buffers would let the garbage collector run often. */
class Outlet {
  readonly compressed = createZstdCompress({ chunkSize: CHUNK })
  #chunk: Buffer = Buffer.allocUnsafe(CHUNK)
  #length = 0
  readonly #free: Queue.Queue<Buffer>

  constructor(free: Queue.Queue<Buffer>) {
    this.#free = free
    for (let n = 1; n < CHUNKS; n++) Queue.offerUnsafe(free, Buffer.allocUnsafe(CHUNK))
  }

  write(bytes: Uint8Array): Effect.Effect<void> {
    return Effect.suspend(() => {
      const room = CHUNK - this.#length
      const first = bytes.subarray(0, room)
      this.#chunk.set(first, this.#length)
      this.#length += first.length
      if (this.#length < CHUNK) return Effect.void
      return bytes.length === room
        ? this.#flush
        : Effect.andThen(this.#flush, this.write(bytes.subarray(room)))
    })
  }

  readonly end = Effect.suspend(() =>
    Effect.andThen(
      this.#flush,
      Effect.sync(() => this.compressed.end())
    )
  )

  /** Waits for a free chunk. The reader of the compressed bytes fails if they cannot be compressed. */
  get #flush(): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.#length === 0) return Effect.void
      const full = this.#chunk
      this.compressed.write(full.subarray(0, this.#length), () => Queue.offerUnsafe(this.#free, full))
      this.#length = 0
      return Effect.map(Queue.take(this.#free), (free) => {
        this.#chunk = free
      })
    })
  }
}

const outlet = Effect.acquireRelease(
  Effect.map(Queue.unbounded<Buffer>(), (free) => new Outlet(free)),
  ({ compressed }) => Effect.sync(() => compressed.destroy())
)

/** Stores what is written to an outlet. */
const stored = (target: BackupTarget, prefix: string, { compressed }: Outlet) =>
  storeParts(
    target,
    prefix,
    NodeStream.fromReadable<Uint8Array, IoError>({
      evaluate: () => compressed,
      onError: (cause) => toIoError("compress a backup", cause)
    })
  )

export interface Counts {
  readonly files: number
  readonly changed_files: number
  readonly size_bytes: number
}

/** Reads the stats of an open file, which are in memory. */
const statOf = (path: string, fd: number) => ioSync(path, () => fstatSync(fd))

const readAt = (path: string, fd: number, chunk: Buffer, at: number) =>
  called<number>(path, (done) => read(fd, chunk, 0, chunk.length, at, done))

interface PackerOptions {
  readonly onBytes: (bytes: number) => void
  /** Bytes of contents for which a restore has room. */
  readonly most: number
  /** Bytes of contents a second; 0: no limit. */
  readonly rate: number
}

/** Pauses that are shorter than this, in ms, are made with later ones. */
const SHORTEST_PAUSE = 20

/** Returns a function that waits until a rate allows that further bytes are read. Bytes that were not read are not made up for. */
export const makePace = (rate: number) => {
  let due = 0
  return (bytes: number): Effect.Effect<void> =>
    rate === 0
      ? Effect.void
      : Effect.flatMap(elapsedMillis, (now) => {
          due = Math.max(due, now) + (1000 * bytes) / rate
          return due - now < SHORTEST_PAUSE ? Effect.void : Effect.sleep(due - now)
        })
}

/** Writes entries of the archive and of the index. */
class Packer {
  #files = 0
  #changed = 0
  #bytes = 0
  readonly #archive: Outlet
  readonly #index: Outlet
  readonly #options: PackerOptions
  readonly #pace: ReturnType<typeof makePace>
  /** Bytes of contents that take no disk. */
  #holes = 0
  /** One entry is written at a time, and others are read meanwhile. */
  readonly #turn = Semaphore.makeUnsafe(1)
  /** New buffers of this size let the garbage collector run often. */
  readonly #spare: Array<Buffer> = []

  constructor(archive: Outlet, index: Outlet, options: PackerOptions) {
    this.#archive = archive
    this.#index = index
    this.#options = options
    this.#pace = makePace(options.rate)
  }

  get counts(): Counts {
    return { files: this.#files, changed_files: this.#changed, size_bytes: this.#bytes }
  }

  readonly onChanged = (): void => {
    this.#changed += 1
  }

  readonly add = Effect.fnUntraced(function* (this: Packer, walked: Walked) {
    const { name, path, stats } = walked
    const entry: ArchiveEntry = {
      name: name.length === 0 ? Buffer.from(".") : Buffer.concat([BELOW, name]),
      kind: "folder",
      mode: stats.mode & PERMISSIONS,
      mtime: Math.max(0, Math.floor(stats.mtimeMs / 1000)),
      size: 0,
      target: Buffer.alloc(0)
    }
    if (stats.isDirectory()) return yield* this.#bare(entry, { path, type: "folder" })
    if (stats.isSymbolicLink()) {
      const target = yield* walked.target
      return yield* this.#bare({ ...entry, kind: "link", target }, { path, type: "link" })
    }
    // Pipes, sockets and devices have no contents; their users make them again.
    if (stats.isFile()) yield* this.#file(walked, entry)
  })

  /** Writes an entry without contents. */
  #bare(entry: ArchiveEntry, noted: IndexEntry): Effect.Effect<void> {
    return this.#turn.withPermit(Effect.andThen(this.#archive.write(tarHeader(entry)), this.#note(noted)))
  }

  readonly #file = Effect.fnUntraced(function* (this: Packer, { open, path }: Walked, entry: ArchiveEntry) {
    const file = yield* open
    const before = yield* statOf(path, file)
    const chunk = this.#spare.pop() ?? Buffer.allocUnsafe(CHUNK)
    const first = yield* readAt(path, file, chunk.subarray(0, before.size), 0)
    yield* this.#turn.withPermit(
      Effect.gen({ self: this }, function* () {
        yield* this.#checkHoles(path, before)
        yield* this.#archive.write(tarHeader({ ...entry, kind: "file", size: before.size }))
        const { isWhole, sha256 } = yield* this.#contents(path, file, before.size, chunk, first)
        if (before.size % 512 !== 0) yield* this.#archive.write(tarPadding(before.size))
        const after = yield* statOf(path, file)
        if (!isWhole || after.size !== before.size || after.mtimeMs !== before.mtimeMs) this.onChanged()
        this.#files += 1
        yield* this.#note({ path, type: "file", size: before.size, sha256 })
      })
    )
    this.#spare.push(chunk)
  })

  /** Refuses holes for which a restore has no room: their zeros are read for days. Contents that take disk are packed. */
  #checkHoles(path: string, { blocks, size }: Stats): Effect.Effect<void, AccessError> {
    const { most } = this.#options
    this.#holes += Math.max(0, size - blocks * 512)
    const all = this.#bytes + size
    if (all <= most || 2 * this.#holes <= all - most) return Effect.void
    return unprocessable(
      `${path.slice(0, 200)}: with it, the files and their holes have ${megabytes(all)}, and a restore has room for ${megabytes(most)}`,
      "Delete sparse files, or exclude them in the blueprint."
    )
  }

  /**
   * Writes exactly `size` bytes: the header has announced them, and the file may become shorter or longer.
   * @param first the number of bytes at the beginning of `chunk` that were read before
   */
  readonly #contents = Effect.fnUntraced(function* (
    this: Packer,
    path: string,
    fd: number,
    size: number,
    chunk: Buffer,
    first: number
  ) {
    const hash = createHash("sha256")
    let isWhole = true
    for (let at = 0, read = first; at < size; ) {
      const room = chunk.subarray(0, Math.min(CHUNK, size - at))
      if (at > 0) read = yield* readAt(path, fd, room, at)
      isWhole &&= read > 0
      const bytes = read === 0 ? room.fill(0) : room.subarray(0, read)
      hash.update(bytes)
      yield* this.#archive.write(bytes)
      at += bytes.length
      this.#bytes += bytes.length
      this.#options.onBytes(this.#bytes)
      yield* this.#pace(bytes.length)
    }
    return { isWhole, sha256: hash.digest("hex") }
  })

  #note(entry: IndexEntry): Effect.Effect<void> {
    return this.#index.write(Buffer.from(`${JSON.stringify(entry)}\n`))
  }
}

interface PackOptions extends PackerOptions {
  readonly id: string
  /** Patterns of paths that are left out. */
  readonly exclude: ReadonlyArray<string>
}

/** Packs the files of a server as the objects of a backup, without its manifest. */
export const packServer = Effect.fnUntraced(function* (
  site: Site,
  target: BackupTarget,
  { exclude, id, ...options }: PackOptions
) {
  const [archive, index] = [yield* outlet, yield* outlet]
  const packer = new Packer(archive, index, options)
  const packed = walkServer(
    site,
    pathPatterns(exclude),
    (entry) => Effect.catchIf(packer.add(entry), hasChanged, () => Effect.sync(packer.onChanged)),
    packer.onChanged
  ).pipe(Effect.andThen(archive.write(TAR_END)), Effect.andThen(archive.end), Effect.andThen(index.end))
  // The first failure ends the others: nothing waits for bytes that do not come.
  const [, parts, entries] = yield* Effect.all(
    [packed, stored(target, `${id}/part`, archive), stored(target, `${id}/index`, index)],
    { concurrency: "unbounded" }
  )
  return { archive: parts, index: entries, counts: packer.counts }
}, Effect.scoped)
