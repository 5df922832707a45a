/** Moving an unpacked tree into the folder that gets it, entry by entry, without copying where the kernel can rename. */
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Option, type Scope } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import type { Overwrite } from "../../contract/domain/FileTask.ts"
import { describe, enter, io, lstatIn, within } from "../disk/safePath.ts"
import { type AccessError, conflict } from "./refused.ts"
import type { Located, Site } from "./Site.ts"
import { type CopyOptions, copyInside, entriesIn, removeInside, renameAt } from "./trees.ts"

/** A server that writes meanwhile lets an emptied folder have entries again. */
const MAX_ROUNDS = 4

export interface Placing {
  readonly site: Site
  readonly overwrite: Overwrite
  /** Name of an unfinished copy beside its target, for other file systems. */
  readonly aside: Buffer
  readonly take: CopyOptions["take"]
}

/** The same folder twice: as it was unpacked, and as it is on the server. */
interface Pair {
  readonly path: string
  readonly from: fs.FileHandle
  readonly to: fs.FileHandle
}

interface Child {
  readonly path: string
  readonly from: Located
  readonly to: Located
  readonly stats: Stats
  readonly there: Option.Option<Stats>
}

/** Opens what lies at the target of a folder: volumes are opened at their source. */
const targetOf = Effect.fnUntraced(function* ({ site }: Placing, { path, to }: Child) {
  return site.isSharedTarget(path)
    ? Option.some(yield* site.folderAt(yield* site.place(path)))
    : yield* enter(path, to.folder, to.name)
})

const childOf = Effect.fnUntraced(function* ({ from, path, to }: Pair, name: Buffer) {
  const child = childPath(path, shownName(name))
  const stats = yield* lstatIn(child, from, name)
  if (Option.isNone(stats)) return undefined
  return {
    path: child,
    from: { folder: from, name },
    to: { folder: to, name },
    stats: stats.value,
    there: yield* lstatIn(child, to, name)
  } satisfies Child
})

/** Whether a volume, mount or overlay lies at a path or below it, so that the folder of its path is entered. */
const hasFixed = ({ site }: Placing, path: string) => site.fixedWithin(path) !== undefined

const whyInTheWay = ({ overwrite }: Placing, { path, stats, there }: Child) => {
  if (Option.isNone(there)) return undefined
  const isFolder = stats.isDirectory()
  if (isFolder !== there.value.isDirectory()) {
    return conflict(
      path,
      `it ${describe(there.value)}, and ${isFolder ? "a folder" : "no folder"} in the archive`,
      "Remove it, or unpack into another folder."
    )
  }
  return isFolder || overwrite !== "fail"
    ? undefined
    : conflict(
        path,
        "it exists; overwrite=replace replaces it, overwrite=skip leaves it",
        "Send overwrite=replace or overwrite=skip, or unpack into another folder."
      )
}

/** Refuses the tree if something that exists is in its way. Folders are joined. */
export const checkPlacing = (placing: Placing, pair: Pair): Effect.Effect<void, AccessError> =>
  entriesIn(pair.from, ({ name }) =>
    Effect.gen(function* () {
      const child = yield* childOf(pair, name)
      if (child === undefined) return
      const why = whyInTheWay(placing, child)
      if (why !== undefined) return yield* placing.overwrite === "skip" ? Effect.void : why
      const { path, stats, there } = child
      if (!stats.isDirectory() || (Option.isNone(there) && !hasFixed(placing, path))) return
      const from = yield* enter(path, pair.from, name)
      const to = yield* targetOf(placing, child)
      if (Option.isSome(from) && Option.isSome(to))
        yield* checkPlacing(placing, { path, from: from.value, to: to.value })
    }).pipe(Effect.scoped)
  )

/** Moves an entry. To another file system, it is copied beside its target before. */
export const moveTo = (
  { aside, take }: Pick<Placing, "aside" | "take">,
  { from, path, to }: Pick<Child, "from" | "path" | "to">
): Effect.Effect<void, AccessError> =>
  renameAt(path, from, to).pipe(
    Effect.catchIf(
      (error) => error._tag === "IoError" && error.code === "EXDEV",
      Effect.fnUntraced(function* () {
        const copy: Located = { folder: to.folder, name: aside }
        // A killed daemon may have left it.
        yield* removeInside(path, copy)
        yield* copyInside(path, from, copy, { take, check: () => Effect.void }).pipe(
          Effect.andThen(renameAt(path, copy, to)),
          Effect.onError(() => Effect.ignore(removeInside(path, copy)))
        )
        yield* removeInside(path, from)
      })
    )
  )

const placeChild = Effect.fnUntraced(function* (
  placing: Placing,
  pair: Pair,
  name: Buffer,
  late: (path: string) => void
): Effect.fn.Return<void, AccessError, Scope.Scope> {
  const child = yield* childOf(pair, name)
  if (child === undefined) return
  const { from, path, stats, there } = child
  const isThere = Option.isSome(there)
  if (
    whyInTheWay(placing, child) !== undefined ||
    (isThere && !stats.isDirectory() && placing.overwrite === "skip")
  ) {
    if (placing.overwrite !== "skip") late(path)
    return yield* removeInside(path, from)
  }
  if (!stats.isDirectory() || (!isThere && !hasFixed(placing, path))) return yield* moveTo(placing, child)
  const inside = yield* enter(path, from.folder, name)
  const target =
    isThere || placing.site.isSharedTarget(path)
      ? yield* targetOf(placing, child)
      : yield* enter(path, pair.to, name, () => {})
  if (Option.isNone(inside) || Option.isNone(target)) return
  yield* placeTree(placing, { path, from: inside.value, to: target.value }, late)
  yield* Effect.ignore(io(path, () => fs.rmdir(within(from.folder, name))))
})

/**
 * Moves all entries of an unpacked folder into the folder that gets them; after a restart, those that are left.
 * @param late gets each path at which something appeared after {@link checkPlacing}, and stays
 */
export const placeTree = Effect.fnUntraced(function* (
  placing: Placing,
  pair: Pair,
  late: (path: string) => void
): Effect.fn.Return<void, AccessError> {
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    let found = 0
    yield* entriesIn(pair.from, ({ name }) => {
      found += 1
      return Effect.scoped(placeChild(placing, pair, name, late))
    })
    if (found === 0) return
  }
})
