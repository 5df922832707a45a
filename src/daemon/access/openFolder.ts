/** Folders that a session has open: read once, in the order of the file system, a few entries at a time (spec 10.6). */
import type { Stats } from "node:fs"
import { Effect, Option, Scope, Semaphore } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import { ENTRIES_AT_ONCE, type ListedEntry } from "../../contract/nodeApi/sessionFrames.ts"
import { nextEntries, openEntries } from "../disk/fsio.ts"
import { FOLDER, isTemporary, lstatIn, open, PERMISSIONS } from "../disk/safePath.ts"
import { statEntry, typeOf } from "./entries.ts"
import type { AccessError } from "./refused.ts"
import type { Site } from "./Site.ts"

const CONCURRENCY = 16

const listed = (name: string, stats: Stats): ListedEntry => ({
  name,
  type: typeOf(stats),
  mode: stats.mode & PERMISSIONS,
  modified: Math.max(0, Math.floor(stats.mtimeMs / 1000)),
  size: stats.isDirectory() ? 0 : stats.size
})

/** Opens a folder for reading until the scope ends. The returned effect has the next entries; none: the end. */
export const openEntriesOf = Effect.fnUntraced(function* (site: Site, given: string, scope: Scope.Scope) {
  const place = yield* site.place(given)
  const walked = yield* site.folderAt(place)
  const at = `/proc/self/fd/${walked.fd}/.`
  const folder = yield* Scope.provide(open(place.path, at, FOLDER), scope)
  const names = yield* Scope.provide(openEntries(at, ENTRIES_AT_ONCE), scope)
  const oneAtATime = yield* Semaphore.make(1)

  /** A volume or mount is shown as what it is. */
  const entryOf = Effect.fnUntraced(function* (bytes: Buffer) {
    const name = shownName(bytes)
    const path = childPath(place.path, name)
    if (isTemporary(name) || site.isHidden(path)) return []
    if (site.isSharedTarget(path)) {
      const { entry } = yield* Effect.scoped(statEntry(site, path))
      const modified = Math.floor(Date.parse(entry.modified_at) / 1000)
      return [{ name, type: entry.type, mode: Number.parseInt(entry.mode, 8), modified, size: entry.size }]
    }
    const found = yield* lstatIn(path, folder, bytes)
    return Option.isNone(found) ? [] : [listed(name, found.value)]
  })

  const read: Effect.Effect<ReadonlyArray<ListedEntry>, AccessError> = Effect.gen(function* () {
    while (true) {
      const batch = yield* Effect.uninterruptible(nextEntries(names, at, ENTRIES_AT_ONCE))
      if (batch.length === 0) return []
      const entries = yield* Effect.forEach(
        batch,
        ({ name }) =>
          // An entry may change while it is listed.
          Effect.catchIf(
            entryOf(name),
            (error) => error._tag !== "IoError" || error.code === "ENOENT" || error.code === "EINVAL",
            () => Effect.succeed([])
          ),
        { concurrency: CONCURRENCY }
      )
      if (entries.some((some) => some.length > 0)) return entries.flat()
    }
  })
  return oneAtATime.withPermit(read)
})
