/** What keeps a tree where it is: volumes, mounts, and what the rules of the blueprint protect in it (spec 10.4). */
import type * as fs from "node:fs/promises"
import { Effect, Option } from "effect"
import { enter } from "../disk/safePath.ts"
import { conflict, forbidden, unprocessable } from "./refused.ts"
import type { Located, Place, Site } from "./Site.ts"
import { MAX_DEPTH, walkInside } from "./trees.ts"

/** Entries in which rules of the blueprint are looked for. */
const MOST_CHECKED = 200_000

export const refuseFixed = (site: Site, path: string) => {
  const fixed = site.fixedWithin(path)
  return fixed === undefined
    ? Effect.void
    : conflict(
        path,
        `${site.isHidden(fixed) ? "something in it" : fixed} is a volume or mount, which stays where it is`,
        "Name what lies beside it."
      )
}

/** Refuses a tree for an entry in it whose name callers do not see. */
export const holdsHidden = (path: string) =>
  forbidden(path, "it has something in it that callers may not reach")

/** Refuses a tree that has something in it which callers may not write, or would have at `to`. */
export const refuseProtected = Effect.fnUntraced(function* (
  site: Site,
  { path }: Place,
  at: Located,
  to: string = path,
  isRead = false
) {
  if (!site.hasPatterns) return
  const folder = yield* enter(path, at.folder, at.name).pipe(
    Effect.catchTag("PathRefused", () => Effect.succeed(Option.none<fs.FileHandle>()))
  )
  if (Option.isNone(folder)) return
  let entries = 0
  yield* walkInside(path, folder.value, (entry) => {
    entries += 1
    if (entries > MOST_CHECKED)
      return unprocessable(
        `${path}: it has more than ${MOST_CHECKED} entries`,
        "Change its folders one by one."
      )
    if (entry.depth >= MAX_DEPTH && entry.stats.isDirectory())
      return unprocessable(
        `${path}: it has folders more than ${MAX_DEPTH} deep`,
        "Change its folders one by one."
      )
    if (site.isHidden(entry.path)) return holdsHidden(path)
    const why = isRead ? undefined : site.whyNotWritable(entry.path)
    const other = site.whyNotWritable(`${to}${entry.path.slice(path.length)}`)
    if (why !== undefined) return forbidden(entry.path, why)
    return other === undefined
      ? Effect.succeed(true)
      : forbidden(`${to}${entry.path.slice(path.length)}`, other)
  })
}, Effect.scoped)
