import { constants, type Dirent, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { type IoError, io, lstat, mountsAt, openFile } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** Opens what has the name to name it only (open(2), O_PATH): a link itself, a pipe without waiting. */
const NAME = 0o10000000 | constants.O_NOFOLLOW
/** Entries of one folder that are given at the same time. */
const WIDTH = 8

/** A file with other names; those that were met in the volume, and how many there are in all. */
interface Names {
  met: number
  readonly first: string
}

/**
 * Gives a volume that servers write, or the files of a server, to the user, if the top does not belong to the user yet: a
 * file, or a folder with all that is in it but devices. The top comes last, so that what was cut off is done again. Servers may write in it meanwhile: what
 * is given is what was looked at, no link is followed, and nothing of what is mounted in it is given. A file that has
 * names outside of it is left to its owner, with a warning.
 */
export const chownVolume = Effect.fn("chownVolume")(function* (path: string, user: RunUser) {
  // Only root can give away, and only to somebody else has it to.
  if (process.geteuid?.() !== 0 || user.uid === 0) return
  const top = yield* lstat(path)
  if (top === undefined || top.uid === user.uid || !(top.isDirectory() || top.isFile())) return
  const mounted = new Set((yield* mountsAt(path)).map((mount) => mount.path))
  mounted.delete(path)
  const linked = new Map<string, Names>()

  const isMine = ({ gid, uid }: Stats) => uid === user.uid && gid === user.gid
  const chown = (shown: string, handle: fs.FileHandle) =>
    io(`give ${shown} to user ${user.uid}`, () => fs.chown(`/proc/self/fd/${handle.fd}`, user.uid, user.gid))

  /** Whether all names of a file were met in the volume. */
  const isOnlyHere = (shown: string, { dev, ino, nlink }: Stats) => {
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
      const stats = yield* io(`look at ${shown}`, () => handle.stat())
      if (stats.dev !== top.dev || mounted.has(shown)) return
      if (stats.isDirectory()) {
        const inside = `/proc/self/fd/${handle.fd}`
        const entries = yield* io(`read ${shown}`, () => fs.readdir(inside, { withFileTypes: true }))
        const folders = entries.filter((entry) => entry.isDirectory())
        const others = entries.filter((entry) => !entry.isDirectory())
        const giveEntry = ({ name }: Dirent) => give(join(shown, name), `${inside}/${name}`)
        yield* Effect.forEach(others, giveEntry, { concurrency: WIDTH, discard: true })
        // Each is open while it is gone through: at the same time only those at the top, so that open files stay few.
        yield* Effect.forEach(folders, giveEntry, { concurrency: shown === path ? WIDTH : 1, discard: true })
        if (!isMine(stats)) yield* chown(shown, handle)
      } else if (stats.isCharacterDevice() || stats.isBlockDevice()) return
      else if (!isMine(stats) && isOnlyHere(shown, stats)) yield* chown(shown, handle)
    }).pipe(
      Effect.scoped,
      // It has gone meanwhile.
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
