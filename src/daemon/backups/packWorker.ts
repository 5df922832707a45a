/** The thread that reads the files of a server, and makes an archive and an index of them (spec 12.3). */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { fstatSync, readlinkSync, readSync, rmSync, type Stats } from "node:fs"
import { basename } from "node:path"
import { parentPort, workerData } from "node:worker_threads"
import { constants, zstdCompressSync } from "node:zlib"
import { Effect, Exit } from "effect"
import type { PackedEntry } from "../../contract/domain/Backup.ts"
import { shownName } from "../../contract/domain/Files.ts"
import { megabytes } from "../../contract/domain/Limits.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { unprocessable } from "../access/refused.ts"
import { type ArchiveEntry, identityOf, TAR_END, tarHeader, tarPadding } from "../archives/format.ts"
import { IoError, ioSync } from "../disk/fsio.ts"
import { type Name, PERMISSIONS } from "../disk/safePath.ts"
import { sentFailure } from "../packed/threads.ts"
import { hasChanged, type WalkError, type Walked, walkServer, withFile } from "../packed/walk.ts"
import { CHUNK, Chunks, FRAME } from "./chunks.ts"
import { makeHold } from "./hold.ts"
import type { Counts, Held, PackJob, PackMessage } from "./pack.ts"

/** The beginning of names in the archive: `./`. */
const BELOW = Buffer.of(0x2e, 0x2f)
const NOTHING = Buffer.alloc(0)
/** Level 3, the default, takes 1.6 times the CPU time, and saves 6 % of text. */
const ZSTD = { chunkSize: CHUNK, params: { [constants.ZSTD_c_compressionLevel]: 2 } }
// `pack.ts` alone starts this thread.
const { chunks: shared, from, held, isOnlyHashed, most, ...walk } = workerData as PackJob
const chunks = new Chunks(shared)
const send = (message: PackMessage) => parentPort?.postMessage(message)

// The lowest weight (spec 12.3). A host without the program packs as others read; the class idle could hold a server for hours.
spawnSync("ionice", ["-c", "best-effort", "-n", "7", "-p", basename(readlinkSync("/proc/thread-self"))])

/** Ends the thread. Where it is terminated within a call of zstd, it would end the process with it. */
const end = (): never => process.exit()

const counts = { files: 0, changed_files: 0, size_bytes: 0 } satisfies Counts
/** Bytes of contents that were read. */
let done = 0
const onChanged = () => {
  counts.changed_files += 1
}

/** Bytes on their way to the archive or the index. Each buffer of them becomes a frame of zstd. */
class Outlet {
  readonly #to: "archive" | "index"
  readonly #buffer = Buffer.allocUnsafe(FRAME)
  #length = 0
  #flushed = 0

  constructor(to: "archive" | "index") {
    this.#to = to
  }

  /** Bytes that were written. */
  get written(): number {
    return this.#flushed + this.#length
  }

  /** Has `fill` write up to `most` bytes, and returns their number. */
  fill(most: number, fill: (room: Buffer) => number): number {
    const filled = fill(this.#buffer.subarray(this.#length, this.#length + most))
    this.#length += filled
    if (this.#length === FRAME) this.flush()
    return filled
  }

  write(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; )
      at += this.fill(bytes.length - at, (room) => bytes.copy(room, 0, at))
  }

  /** Gives the bytes to the thread that stores them. It waits until there is a free chunk. */
  flush(): void {
    const frame = isOnlyHashed ? NOTHING : zstdCompressSync(this.#buffer.subarray(0, this.#length), ZSTD)
    this.#flushed += this.#length
    this.#length = 0
    const chunk = chunks.take() ?? end()
    const length = frame.copy(chunks.bytesOf(chunk))
    // Gives its memory back. Else V8 collects its whole heap for every 50 frames, which takes a tenth of the CPU time.
    if (!isOnlyHashed) frame.buffer.transfer(0)
    send({ to: this.#to, chunk, length, done })
  }
}

const archive = new Outlet("archive")
const index = new Outlet("index")

const identity = createHash("sha256")

const note = (entry: PackedEntry): undefined => {
  const line = JSON.stringify(entry)
  identity.update(`${identityOf(line)}\n`)
  index.write(Buffer.from(`${line}\n`))
}

/** Bytes of contents that take no disk. */
let holes = 0

/** Refuses holes for which a restore has no room: their zeros are read for days. Contents that take disk are packed. */
const whyTooLarge = (path: string, { blocks, size }: Stats): FileRefused | undefined => {
  holes += Math.max(0, size - blocks * 512)
  const all = counts.size_bytes + size
  if (all <= most || 2 * holes <= all - most) return undefined
  return unprocessable(
    `${path.slice(0, 200)}: with it, the files and their holes have ${megabytes(all)}, and a restore has room for ${megabytes(most)}`,
    "Delete sparse files, or exclude them in the blueprint."
  )
}

/** Writes exactly `size` bytes: the header has announced them, and the file may become shorter or longer. */
const writeContents = (fd: number, size: number) => {
  const hash = createHash("sha256")
  let isWhole = true
  for (let at = 0; at < size; ) {
    at += archive.fill(size - at, (room) => {
      const read = readSync(fd, room, 0, room.length, at)
      isWhole &&= read > 0
      const bytes = read === 0 ? room.fill(0) : room.subarray(0, read)
      hash.update(bytes)
      counts.size_bytes += bytes.length
      done += bytes.length
      return bytes.length
    })
  }
  archive.write(tarPadding(size))
  return { isWhole, sha256: hash.digest("hex") }
}

/** An entry, and the file that has its contents. */
interface Found extends ArchiveEntry {
  readonly path: string
  readonly real: Name
}

const addFile = ({ path, real, ...entry }: Found) => {
  const packed = withFile({ path, real }, (fd, before) => {
    const refusal = whyTooLarge(path, before)
    if (refusal !== undefined) return refusal
    const { size } = before
    archive.write(tarHeader({ ...entry, size }))
    const at = from + archive.written
    const { isWhole, sha256 } = writeContents(fd, size)
    const after = fstatSync(fd)
    if (!isWhole || after.size !== size || after.mtimeMs !== before.mtimeMs) onChanged()
    counts.files += 1
    const { mode, mtime } = entry
    return note({ path, type: "file", mode, mtime, size, sha256, at })
  })
  return Effect.flatMap(packed, (refusal) => (refusal ? Effect.fail(refusal) : Effect.void))
}

/** Pipes, sockets and devices are none: they have no contents, and their users make them again. */
const kindOf = (stats: Stats) => {
  if (stats.isFile()) return "file"
  if (stats.isDirectory()) return "folder"
  return stats.isSymbolicLink() ? "link" : undefined
}

const foundOf = ({ name, path, real, stats }: Walked) =>
  ioSync(path, (): Found | undefined => {
    if (chunks.isEnded) end()
    const kind = kindOf(stats)
    if (kind === undefined) return undefined
    return {
      path,
      real,
      name: name.length === 0 ? Buffer.from(".") : Buffer.concat([BELOW, name]),
      kind,
      mode: stats.mode & PERMISSIONS,
      mtime: Math.max(0, Math.floor(stats.mtimeMs / 1000)),
      size: 0,
      target: kind === "link" ? readlinkSync(real, { encoding: "buffer" }) : NOTHING
    }
  })

const pack = (found: Found): Effect.Effect<void, WalkError> => {
  if (chunks.isEnded) end()
  const { kind, mode, mtime, path, target } = found
  if (kind === "file") return addFile(found)
  return Effect.sync(() => {
    archive.write(tarHeader(found))
    const entry = { path, type: kind, mode, mtime }
    note(kind === "link" ? { ...entry, target: shownName(target) } : entry)
  })
}

const add = (walked: Walked) =>
  Effect.flatMap(foundOf(walked), (found) => (found === undefined ? Effect.void : pack(found)))

const keep = (stats: Stats) => {
  if (!stats.isFile()) return
  counts.files += 1
  counts.size_bytes += stats.size
}
/** Paths that the base may have, and the server has not. */
const remove = (path: string) => index.write(Buffer.from(`${JSON.stringify({ path, type: "removed" })}\n`))

/** Entries that are in memory until they are packed. */
const MOST_HELD = 60_000

/** An entry with its path as bytes, or a path that is removed. */
type Entry = { readonly found: Found; readonly name: Buffer } | string

/** Finds what is to be copied. No copy is made of a server that has too much: copies of small files take longer than reads. */
const findHeld = Effect.fnUntraced(function* (room: number) {
  const entries: Array<Entry> = []
  let shared = 0
  const find = Effect.fnUntraced(function* (walked: Walked) {
    const found = yield* foundOf(walked)
    if (found === undefined) return
    if (found.kind === "file") shared += walked.stats.blocks * 512
    if (entries.push({ found, name: walked.name }) > MOST_HELD || shared > room)
      return yield* new IoError({ code: "E2BIG", message: "the server is too large to be held" })
  })
  yield* walkServer(walk, { add: find, keep, onChanged, remove: (path) => void entries.push(path) })
  return entries
})

/** Copies the files of the server. Their blocks are shared until the server overwrites them. */
const holdFiles = Effect.fnUntraced(function* ({ folder, room }: Held) {
  const entries = yield* findHeld(room)
  const hold = makeHold(folder, walk.below?.upper ?? `/proc/self/fd/${walk.fd}/.`)
  for (const [at, entry] of entries.entries()) {
    if (typeof entry === "string" || entry.found.kind !== "file") continue
    if (chunks.isEnded) end()
    const { found, name } = entry
    const held = Effect.map(
      hold({ name, path: found.path }),
      (real): Entry => ({ name, found: { ...found, real } })
    )
    entries[at] = yield* Effect.catchIf(held, hasChanged, () => {
      onChanged()
      return Effect.succeed(found.path)
    })
  }
  return entries
})

/** Packs copies of the files. Returns false, and leaves no copy, where they cannot be made. */
const packHeld = Effect.fnUntraced(function* (held: Held) {
  const holding = yield* Effect.exit(holdFiles(held))
  if (Exit.isFailure(holding)) {
    Object.assign(counts, { files: 0, changed_files: 0, size_bytes: 0 })
    rmSync(held.folder, { recursive: true, force: true })
    return false
  }
  send({ to: "held" })
  for (const entry of holding.value) {
    if (typeof entry === "string") {
      if (walk.below !== undefined) remove(entry)
      continue
    }
    const { found } = entry
    yield* pack(found)
    if (found.kind === "file") rmSync(found.real, { force: true })
  }
  return true
})

const packAll = Effect.gen(function* () {
  if (held !== undefined && (yield* packHeld(held))) return
  yield* walkServer(walk, { add, keep, onChanged, remove })
})

const packed = packAll.pipe(
  Effect.match({
    onSuccess: (): PackMessage => {
      archive.write(TAR_END)
      archive.flush()
      index.flush()
      return { to: "end", counts, bytes: archive.written, identity: identity.digest("hex") }
    },
    onFailure: sentFailure
  })
)
send(Effect.runSync(packed))
