import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { forEachEntry, type IoError, io, lstat, mountsAt, openFile } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** Opens a name without its contents (open(2), O_PATH): a link itself, a pipe without waiting. */
const NAME = 0o10000000 | constants.O_NOFOLLOW
/** Entries of a folder that are changed at the same time. */
const CONCURRENCY = 8

/** A file with several names: those found in the volume, and their total number. */
interface Names {
  met: number
  readonly first: string
}

/**
 * Sets the owner of a volume, or of a server's files, unless its top has that owner already: a file, or a folder with
 * its contents except devices. The top is changed last, so that an interrupted run is repeated. Servers may write
 * meanwhile: the checked entries are changed, no link is followed, and mounts below are skipped. A file with names
 * outside the volume keeps its owner, with a warning.
 */
export const chownVolume = Effect.fn("chownVolume")(function* (path: string, user: RunUser) {
  // Only root can change owners, and only other users need it.
  if (process.geteuid?.() !== 0 || user.uid === 0) return
  const top = yield* lstat(path)
  if (top === undefined || top.uid === user.uid || !(top.isDirectory() || top.isFile())) return
  const mounted = new Set((yield* mountsAt(path)).map((mount) => mount.path))
  mounted.delete(path)
  const linked = new Map<string, Names>()

  const isMine = ({ gid, uid }: Stats) => uid === user.uid && gid === user.gid
  const chown = (shown: string, handle: fs.FileHandle) =>
    io(`give ${shown} to user ${user.uid}`, () => fs.chown(`/proc/self/fd/${handle.fd}`, user.uid, user.gid))

  /** Whether all names of a file were found in the volume. */
  const hasAllNames = (shown: string, { dev, ino, nlink }: Stats) => {
    if (nlink === 1) return true
    const key = `${dev}:${ino}`
    const names = linked.get(key) ?? { met: 0, first: shown }
    names.met += 1
    if (names.met < nlink) linked.set(key, names)
    else linked.delete(key)
    return names.met === nlink
  }

  const give = (shown: string, real: string): Effect.Effect<void, IoError> =>
    Effect.gen(function* () {
      const handle = yield* openFile(real, NAME)
      const stats = yield* io(`stat ${shown}`, () => handle.stat())
      if (stats.dev !== top.dev || mounted.has(shown)) return
      if (stats.isDirectory()) {
        const inside = `/proc/self/fd/${handle.fd}`
        yield* forEachEntry(inside, ({ name }) => give(join(shown, String(name)), `${inside}/${name}`), {
          others: CONCURRENCY,
          // Folders stay open while they are processed; only the top level runs in parallel, which bounds open files.
          folders: shown === path ? CONCURRENCY : 1
        })
        if (!isMine(stats)) yield* chown(shown, handle)
      } else if (stats.isCharacterDevice() || stats.isBlockDevice()) return
      else if (!isMine(stats) && hasAllNames(shown, stats)) yield* chown(shown, handle)
    }).pipe(
      Effect.scoped,
      // The entry was removed meanwhile.
      Effect.catchIf(
        (error) => error.code === "ENOENT",
        () => Effect.void
      )
    )
  yield* give(path, path)
  const [left] = linked.values()
  if (left === undefined) return
  yield* Effect.logWarning(
    `${path}: ${linked.size === 1 ? "a file stays with its owner, since it has" : `${linked.size} files stay with their owners, since they have`} names outside of it, too: ${left.first}. If servers are to write it, put a copy there`
  )
})
