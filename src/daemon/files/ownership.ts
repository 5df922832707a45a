import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { type IoError, io, lstat } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** Folders that are looked through at the same time. */
const AT_ONCE = 16

/**
 * Gives a folder and all that is in it to the user, links themselves included; only what is not theirs already is
 * changed. Nobody else may write in it meanwhile: a path that is swapped for a link would be followed. `others`: paths
 * in it at which something is mounted that others use, too; they are left alone.
 */
export const chownTree = (
  path: string,
  user: RunUser,
  others: ReadonlySet<string> = new Set()
): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    if (others.has(path)) return
    const stats = yield* lstat(path)
    if (stats === undefined) return
    if (stats.uid !== user.uid || stats.gid !== user.gid) {
      yield* io(`give ${path} to user ${user.uid}`, () => fs.lchown(path, user.uid, user.gid))
    }
    if (!stats.isDirectory()) return
    const entries = yield* io(`read ${path}`, () => fs.readdir(path))
    yield* Effect.forEach(entries, (name) => chownTree(join(path, name), user, others), {
      concurrency: AT_ONCE,
      discard: true
    })
  })
