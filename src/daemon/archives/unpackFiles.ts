/** Writes the entries of an archive below a folder, exactly as the reader returns them, and never through a link. */
import type { BigIntStats } from "node:fs"
import * as fs from "node:fs/promises"
import { Data, Effect, Stream } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { IoError, io } from "../disk/fsio.ts"
import { checkFreeSpace } from "../disk/remedy.ts"
import { CREATE, FOLDER, writeAll } from "../disk/safePath.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { ArchiveReader, type Attributes, type Step, shownPath } from "./ArchiveReader.ts"
import { ENTRY_BYTES } from "./format.ts"

export class ArchiveRefused extends Data.TaggedError("ArchiveRefused")<{ readonly message: string }> {}

export interface UnpackOptions {
  /** The owner of all entries, if the daemon is root. Default: the user of the daemon. */
  readonly user?: RunUser | undefined
  /** The limit of bytes: contents, and 512 bytes per header. Default: no limit. */
  readonly limit?: number | undefined
  /** Bytes of the disk that stay free. Default: 16 MiB, or an eighth of a small disk, as the reserve of the daemon. */
  readonly free?: number | undefined
  /** Says of the path of an entry, as bytes in `latin1`, whether it is written. Folders on the way to such a path are. */
  readonly wants?: ((path: string) => boolean) | undefined
}

/** The most bytes that describe an entry: two long names, headers, padding. */
const DESCRIPTION = 12 * 1024
/** The most other bytes: filler after the end, and the longest sparse map. */
const MARGIN = 4 * 1024 * 1024

/** Bytes of an archive between two checks of the disk. */
const CHECK_INTERVAL = 4 * 1024 * 1024

const refused = (why: string) => new ArchiveRefused({ message: `the files are refused: ${why}` })

const within = (folder: fs.FileHandle, name: string) =>
  Buffer.concat([Buffer.from(`/proc/self/fd/${folder.fd}/`), Buffer.from(name, "latin1")])

const close = (handle: fs.FileHandle) => io("close a file of the archive", () => handle.close())

/** Returns the function that writes an archive below `root`. At most two files are open at any depth. */
const openWriter = Effect.fnUntraced(function* (root: string, user: RunUser | undefined) {
  const owner = process.geteuid?.() === 0 ? user : undefined
  let file: fs.FileHandle | undefined
  let written = 0
  let folder: fs.FileHandle | undefined
  const parents: Array<Pick<BigIntStats, "dev" | "ino">> = []
  let shown = root

  yield* Effect.addFinalizer(() =>
    Effect.forEach([file, folder], (handle) =>
      handle === undefined ? Effect.void : Effect.ignore(close(handle))
    )
  )

  /** The reader never returns `data` and `end` without a file, nor an entry without a folder. */
  const current = (handle: fs.FileHandle | undefined) =>
    handle === undefined ? Effect.fail(refused("an entry is in no folder")) : Effect.succeed(handle)

  const complete = Effect.fnUntraced(function* (handle: fs.FileHandle, { mode, mtime }: Attributes) {
    if (owner !== undefined) {
      yield* io(`set the owner of ${shown}`, () => handle.chown(owner.uid, owner.gid))
    }
    yield* io(`set permissions of ${shown}`, () => handle.chmod(mode))
    yield* io(`set the time of ${shown}`, () => handle.utimes(mtime, mtime))
  })

  const create = <A>(run: () => Promise<A>) =>
    Effect.catchTag(io(`create ${shown}`, run), "IoError", (error) =>
      Effect.fail(error.code === "EEXIST" ? refused(`${shown} appears twice`) : error)
    )

  const enter = Effect.fnUntraced(function* (name: string) {
    const outer = folder
    if (outer === undefined) {
      folder = yield* io(`open ${root}`, () => fs.open(root, FOLDER))
      return
    }
    const path = within(outer, name)
    yield* create(() => fs.mkdir(path, { mode: 0o700 }))
    parents.push(yield* io(`stat ${shown}`, () => outer.stat({ bigint: true })))
    folder = yield* io(`open ${shown}`, () => fs.open(path, FOLDER))
    yield* close(outer)
  }, Effect.uninterruptible)

  const leave = Effect.fnUntraced(function* (attributes: Attributes) {
    const inner = yield* current(folder)
    const expected = parents.pop()
    if (expected === undefined) return yield* complete(inner, attributes)
    // Opened first: without the search permission on the folder, its parent cannot be opened.
    const outer = yield* io(`leave ${shown}`, () => fs.open(within(inner, ".."), FOLDER))
    folder = outer
    yield* Effect.ensuring(complete(inner, attributes), Effect.ignore(close(inner)))
    const { dev, ino } = yield* io(`leave ${shown}`, () => outer.stat({ bigint: true }))
    if (dev !== expected.dev || ino !== expected.ino) return yield* refused(`${shown} was moved meanwhile`)
  }, Effect.uninterruptible)

  return Effect.fnUntraced(function* (step: Step) {
    if ("path" in step) shown = shownPath(step.path)
    switch (step._tag) {
      case "folder":
        return yield* enter(step.name)
      case "leave":
        return yield* leave(step)
      case "link": {
        const path = within(yield* current(folder), step.name)
        yield* create(() => fs.symlink(Buffer.from(step.target, "latin1"), path))
        if (owner !== undefined)
          yield* io(`set the owner of ${shown}`, () => fs.lchown(path, owner.uid, owner.gid))
        return yield* io(`set the time of ${shown}`, () => fs.lutimes(path, step.mtime, step.mtime))
      }
      case "file": {
        const path = within(yield* current(folder), step.name)
        const opened = Effect.map(
          create(() => fs.open(path, CREATE, 0o600)),
          (handle) => {
            file = handle
            written = 0
          }
        )
        return yield* Effect.uninterruptible(opened)
      }
      case "data":
        written = step.at + step.bytes.length
        return yield* writeAll(`write ${shown}`, yield* current(file), step.bytes, step.at)
      case "end": {
        const handle = yield* current(file)
        // The file ends with a hole.
        if (written < step.size) yield* io(`write ${shown}`, () => handle.truncate(step.size))
        yield* complete(handle, step)
        file = undefined
        return yield* close(handle)
      }
      case "refused":
        return yield* refused(step.why)
    }
  })
})

/** Returns a function that tells of each step whether it is applied: what lies in an unwanted folder is unwanted. */
const makeIsApplied = (wants: (path: string) => boolean) => {
  let isInside = true
  return (step: Step): boolean => {
    if ("path" in step) {
      const isWanted = step.path === "" || wants(step.path)
      if (step._tag === "file") isInside = isWanted
      return isWanted
    }
    return step._tag === "refused" || isInside
  }
}

/** Unpacks an archive into an empty folder, within the free space. Fails unless the archive is complete. */
export const unpackFiles = <E>(
  archive: Stream.Stream<Uint8Array, E>,
  folder: string,
  { free, limit, user, wants = () => true }: UnpackOptions = {}
): Effect.Effect<void, E | ArchiveRefused | IoError> =>
  Effect.gen(function* () {
    const apply = yield* openWriter(folder, user)
    const reader = new ArchiveReader()
    const isApplied = makeIsApplied(wants)
    let bytes = 0
    let written = 0
    let raw = 0
    let entries = 0
    let checkedAt = Number.NEGATIVE_INFINITY
    yield* Stream.runForEach(
      archive,
      Effect.fnUntraced(function* (chunk) {
        raw += chunk.length
        if (raw - checkedAt >= CHECK_INTERVAL) {
          checkedAt = raw
          yield* checkFreeSpace(folder, free)
        }
        for (const step of reader.read(chunk)) {
          if ("name" in step) entries += 1
          const size = step._tag === "data" ? step.bytes.length : "name" in step ? ENTRY_BYTES : 0
          bytes += size
          if (!isApplied(step)) continue
          written += size
          if (limit !== undefined && written > limit) {
            return yield* new IoError({
              code: "EDQUOT",
              message: `the files exceed the server's disk_space: they have more than ${megabytes(limit)}`
            })
          }
          yield* apply(step)
        }
        // Otherwise names and maps without an entry could continue forever.
        if (raw > 2 * bytes + entries * DESCRIPTION + MARGIN) {
          return yield* refused("most of it is in no file")
        }
      })
    )
    if (!reader.ended) return yield* new ArchiveRefused({ message: "the transfer was interrupted" })
  }).pipe(Effect.scoped)
