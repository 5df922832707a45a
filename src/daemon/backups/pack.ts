/** Packs the files of a server into a target: tar, zstd, parts. Nothing is stored beside the parts (spec 12.3). */
import { createHash } from "node:crypto"
import type { FileHandle } from "node:fs/promises"
import { createZstdCompress } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { type Cause, Effect, Queue, Stream } from "effect"
import { type ArchiveEntry, TAR_END, tarHeader, tarPadding } from "../access/archiveFormat.ts"
import { pathPatterns } from "../access/patterns.ts"
import type { AccessError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { toIoError } from "../disk/fsio.ts"
import { io, PERMISSIONS } from "../disk/safePath.ts"
import type { IndexEntry } from "./manifest.ts"
import { storeParts } from "./parts.ts"
import type { BackupTarget } from "./target.ts"
import { hasChanged, type Walked, walkServer } from "./walk.ts"

/** The beginning of names in the archive: `./`. */
const BELOW = Buffer.of(0x2e, 0x2f)
const CHUNK = 256 * 1024
/** Chunks that wait for their reader. */
const WAITING = 4

/** Bytes on their way to a target; small writes leave together. */
class Outlet {
  readonly queue: Queue.Queue<Uint8Array, AccessError | Cause.Done>
  #buffer = Buffer.allocUnsafe(CHUNK)
  #length = 0

  constructor(queue: Queue.Queue<Uint8Array, AccessError | Cause.Done>) {
    this.queue = queue
  }

  write(bytes: Uint8Array): Effect.Effect<void> {
    return Effect.suspend(() => {
      const put = Effect.suspend(() => this.#put(bytes))
      return this.#length + bytes.length > CHUNK ? Effect.andThen(this.flush, put) : put
    })
  }

  get flush(): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.#length === 0) return Effect.void
      const full = this.#buffer.subarray(0, this.#length)
      this.#buffer = Buffer.allocUnsafe(CHUNK)
      this.#length = 0
      return Effect.asVoid(Queue.offer(this.queue, full))
    })
  }

  #put(bytes: Uint8Array): Effect.Effect<void> {
    if (bytes.length > CHUNK / 2)
      return Effect.andThen(this.flush, Effect.asVoid(Queue.offer(this.queue, bytes)))
    this.#buffer.set(bytes, this.#length)
    this.#length += bytes.length
    return Effect.void
  }
}

/** Stores what is written to an outlet, compressed. */
const stored = (target: BackupTarget, prefix: string, { queue }: Outlet) =>
  storeParts(
    target,
    prefix,
    NodeStream.pipeThroughDuplex(Stream.fromQueue(queue), {
      evaluate: () => createZstdCompress(),
      onError: (cause) => toIoError("compress a backup", cause)
    })
  )

export interface Counts {
  readonly files: number
  readonly changed_files: number
  readonly size_bytes: number
}

/** Writes entries of the archive and of the index. */
class Packer {
  #files = 0
  #changed = 0
  #bytes = 0
  readonly #archive: Outlet
  readonly #index: Outlet
  readonly #onBytes: (bytes: number) => void

  constructor(archive: Outlet, index: Outlet, onBytes: (bytes: number) => void) {
    this.#archive = archive
    this.#index = index
    this.#onBytes = onBytes
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
    if (stats.isDirectory()) {
      yield* this.#archive.write(tarHeader(entry))
      return yield* this.#note({ path, type: "folder" })
    }
    if (stats.isSymbolicLink()) {
      const target = yield* walked.target
      yield* this.#archive.write(tarHeader({ ...entry, kind: "link", target }))
      return yield* this.#note({ path, type: "link" })
    }
    // Pipes, sockets and devices have no contents; their users make them again.
    if (stats.isFile()) yield* this.#file(walked, entry)
  })

  readonly #file = Effect.fnUntraced(function* (this: Packer, { open, path }: Walked, entry: ArchiveEntry) {
    const file = yield* open
    const before = yield* io(path, () => file.stat())
    yield* this.#archive.write(tarHeader({ ...entry, kind: "file", size: before.size }))
    const { isWhole, sha256 } = yield* this.#contents(path, file, before.size)
    if (before.size % 512 !== 0) yield* this.#archive.write(tarPadding(before.size))
    const after = yield* io(path, () => file.stat())
    if (!isWhole || after.size !== before.size || after.mtimeMs !== before.mtimeMs) this.onChanged()
    this.#files += 1
    yield* this.#note({ path, type: "file", size: before.size, sha256 })
  })

  /** Writes exactly `size` bytes: the header has announced them, and the file may become shorter or longer. */
  readonly #contents = Effect.fnUntraced(function* (
    this: Packer,
    path: string,
    file: FileHandle,
    size: number
  ) {
    const hash = createHash("sha256")
    let isWhole = true
    for (let at = 0; at < size; ) {
      const chunk = Buffer.allocUnsafe(Math.min(CHUNK, size - at))
      const place = at
      const { bytesRead } = yield* io(path, () => file.read(chunk, 0, chunk.length, place))
      isWhole &&= bytesRead > 0
      const bytes = bytesRead === 0 ? chunk.fill(0) : chunk.subarray(0, bytesRead)
      hash.update(bytes)
      yield* this.#archive.write(bytes)
      at += bytes.length
      this.#bytes += bytes.length
      this.#onBytes(this.#bytes)
    }
    return { isWhole, sha256: hash.digest("hex") }
  })

  #note(entry: IndexEntry): Effect.Effect<void> {
    return this.#index.write(Buffer.from(`${JSON.stringify(entry)}\n`))
  }
}

const outlet = Effect.map(
  Queue.bounded<Uint8Array, AccessError | Cause.Done>(WAITING),
  (queue) => new Outlet(queue)
)

interface PackOptions {
  readonly id: string
  /** Patterns of paths that are left out. */
  readonly exclude: ReadonlyArray<string>
  readonly onBytes: (bytes: number) => void
}

/** Packs the files of a server as the objects of a backup, without its manifest. */
export const packServer = Effect.fnUntraced(function* (
  site: Site,
  target: BackupTarget,
  { exclude, id, onBytes }: PackOptions
) {
  const [archive, index] = [yield* outlet, yield* outlet]
  const packer = new Packer(archive, index, onBytes)
  const ended = (one: Outlet) => Effect.andThen(one.flush, Queue.end(one.queue))
  const packed = walkServer(
    site,
    pathPatterns(exclude),
    (entry) => Effect.catchIf(packer.add(entry), hasChanged, () => Effect.sync(packer.onChanged)),
    packer.onChanged
  ).pipe(Effect.andThen(archive.write(TAR_END)), Effect.andThen(ended(archive)), Effect.andThen(ended(index)))
  // The first failure ends the others: nothing waits for bytes that do not come.
  const [, parts, entries] = yield* Effect.all(
    [packed, stored(target, `${id}/part`, archive), stored(target, `${id}/index`, index)],
    { concurrency: "unbounded" }
  )
  return { archive: parts, index: entries, counts: packer.counts }
})
