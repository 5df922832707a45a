import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { forEachEntry, type IoError, io, lstat } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** Folders that are searched at the same time. */
const CONCURRENCY = 16

/**
 * Sets the owner of a folder with its contents, links themselves included; entries with that owner are skipped. No
 * other process may write in it meanwhile, because a path that is replaced by a link would be followed. `others`: paths
 * of shared mounts in it, which are skipped.
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
    yield* forEachEntry(path, ({ name }) => chownTree(join(path, String(name)), user, others), {
      others: CONCURRENCY,
      folders: CONCURRENCY
    })
  })
