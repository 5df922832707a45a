/**
 * Packs the files of a server into a target: tar, zstd, parts. Nothing is stored beside the parts (spec 12.3). One thread
 * reads, hashes and compresses, which waits for the disk and for no other thread: it takes half the CPU time.
 */
import { Cause, Effect, Queue, type Scope } from "effect"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import type { AccessError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { type IoError, io, toIoError } from "../disk/fsio.ts"
import { receivedFailure, startThread, type ThreadFailure } from "../packed/threads.ts"
import type { Walk } from "../packed/walk.ts"
import { Chunks, FRAME } from "./chunks.ts"
import type { Frame } from "./manifest.ts"
import { partsWriter, type StoredParts } from "./parts.ts"
import type { BackupTarget } from "./target.ts"

export interface Counts {
  readonly files: number
  readonly changed_files: number
  readonly size_bytes: number
}

interface Packed {
  readonly archive: StoredParts
  readonly frames: ReadonlyArray<Frame>
  readonly index: StoredParts
  readonly counts: Counts
  /** Bytes of the tar. */
  readonly bytes: number
  /** The digest of the entries, wherever and whenever they were made. */
  readonly identity: string
}

/** An empty folder for copies that share the blocks of the server's files. */
export interface Held {
  readonly folder: string
  /** Bytes that the server may overwrite while the copies keep the old ones. */
  readonly room: number
}

/** What the thread has to know. */
export interface PackJob extends Walk {
  /** Bytes of contents for which a restore has room. */
  readonly most: number
  readonly chunks: Chunks["shared"]
  /** Bytes of the tar of the base, which come before those of this one. */
  readonly from: number
  /** Whether nothing is compressed and sent, because only the identity is wanted. */
  readonly isOnlyHashed: boolean
  /** Where copies of the files are made, which are packed instead. */
  readonly held?: Held | undefined
}

/** What the thread sends. `done`: the bytes of contents that it has read. */
export type PackMessage =
  | {
      readonly to: "archive" | "index"
      readonly chunk: number
      readonly length: number
      readonly done: number
    }
  /** The files of the server are read no more. */
  | { readonly to: "held" }
  | ({ readonly to: "end" } & Pick<Packed, "bytes" | "counts" | "identity">)
  | ThreadFailure

const workerFile = new URL(
  import.meta.url.endsWith(".ts") ? "./packWorker.ts" : "./packWorker.js",
  import.meta.url
)

interface PackOptions extends Omit<PackJob, "chunks" | "from" | "isOnlyHashed"> {
  /** The beginning of the keys of the objects. Default: nothing is stored. */
  readonly prefix?: string
  /** Bytes of the archive and of the tar of the base. */
  readonly after?: { readonly bytes: number; readonly tar: number } | undefined
  readonly onBytes: (bytes: number) => void
  /** Runs once the files of the server are read no more, if that is before the end. */
  readonly onHeld?: Effect.Effect<unknown>
  /** Bytes of contents a second; 0: no limit. */
  readonly rate: number
}

/** Files of a backup that is stored elsewhere, or of none. */
const nowhere: StoredParts = { parts: [], bytes: 0, sha256: "" }

/** Frames of which the manifest has the place of one: a file of a backup is read from the one before it. */
const NOTED_FRAMES = 8

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

type Messages = Queue.Queue<PackMessage, IoError>

const startWorker = (workerData: PackJob, chunks: Chunks, messages: Messages) =>
  startThread({
    file: workerFile,
    workerData,
    onMessage: (message: PackMessage) => Queue.offerUnsafe(messages, message),
    onEnd: (cause) =>
      Queue.failCauseUnsafe(messages, Cause.fail(toIoError("pack the files of the server", cause))),
    // It may be waiting for the disk or a chunk. It ends itself: see `end` of the thread.
    end: () => chunks.end()
  })

/** Packs files as the objects of a backup, without its manifest. */
export const packFolder = Effect.fnUntraced(function* (
  target: BackupTarget,
  { after = { bytes: 0, tar: 0 }, onBytes, onHeld = Effect.void, prefix, rate, ...walk }: PackOptions
): Effect.fn.Return<Packed, AccessError, Scope.Scope> {
  const writerOf = (name: string) =>
    prefix === undefined ? Effect.succeed(undefined) : partsWriter(target, `${prefix}${name}`)
  const writers = { archive: yield* writerOf("part"), index: yield* writerOf("index") }
  const chunks = new Chunks()
  const messages = yield* Queue.unbounded<PackMessage, IoError>()
  yield* startWorker(
    { ...walk, from: after.tar, isOnlyHashed: prefix === undefined, chunks: chunks.shared },
    chunks,
    messages
  )
  const pace = makePace(rate)
  const frames: Array<Frame> = []
  let [made, stored] = [0, 0]
  let read = 0
  for (;;) {
    const message = yield* Queue.take(messages)
    if ("io" in message || "refused" in message) return yield* Effect.fail(receivedFailure(message))
    if ("counts" in message) {
      const { to: _, ...packed } = message
      return {
        ...packed,
        archive: writers.archive === undefined ? nowhere : yield* writers.archive.end,
        frames,
        index: writers.index === undefined ? nowhere : yield* writers.index.end
      }
    }
    if (message.to === "held") {
      yield* onHeld
      continue
    }
    const { chunk, done, length, to } = message
    if (to === "archive") {
      if (made % NOTED_FRAMES === 0)
        frames.push({ at: after.tar + made * FRAME, stored: after.bytes + stored })
      made += 1
      stored += length
    }
    const writer = writers[to]
    if (writer !== undefined) yield* writer.write(chunks.bytesOf(chunk, length))
    onBytes(done)
    // The thread waits for a free chunk, and reads nothing meanwhile.
    yield* pace(done - read)
    read = done
    chunks.free(chunk)
  }
}, Effect.scoped)

/** Packs the files of a server. @param below the base, if only what differs from it is packed */
export const packServer = Effect.fnUntraced(function* (
  site: Site,
  target: BackupTarget,
  { onHeld = Effect.void, ...options }: Omit<PackOptions, "fd" | "own" | "shared">
) {
  const { handle } = yield* site.root(yield* site.place("/"))
  return yield* packFolder(target, {
    ...options,
    // The files of the server may be unmounted from now on.
    onHeld: Effect.andThen(Effect.ignore(io("close the files of the server", () => handle.close())), onHeld),
    fd: handle.fd,
    shared: site.sharedTargets,
    own: site.layout.written.map(({ target: parts }) => `/${parts.join("/")}`)
  })
}, Effect.scoped)
