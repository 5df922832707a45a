/**
 * Restores some files and folders of a backup (spec 12.5). They are unpacked into a hidden folder, which is renamed once it is
 * complete; from then on, they are moved into place one after another, also by a later daemon.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Option, Schema, type Scope, type Stream } from "effect"
import { RestoredPart } from "../../contract/domain/Backup.ts"
import { isWithin, nameBytes, parentOf } from "../../contract/domain/Files.ts"
import { syncFolder } from "../access/contents.ts"
import { checkPlacing, moveTo, type Placing, placeTree } from "../access/placing.ts"
import { type AccessError, conflict, covered, lacks, toTaskError } from "../access/refused.ts"
import { bytesOf, Site } from "../access/Site.ts"
import { removeInside, renameAt } from "../access/trees.ts"
import { type ArchiveRefused, unpackFiles } from "../archives/unpackFiles.ts"
import { IoError, removeTree } from "../disk/fsio.ts"
import { recordReader, writeAtomic } from "../disk/replaceFile.ts"
import { enter, enterAll, io, lstatIn, within } from "../disk/safePath.ts"
import type { FinishPart } from "../files/fileContext.ts"
import { notePlaced, PART } from "../files/swapFiles.ts"
import type { RunUser } from "../runtime/Runtime.ts"

export interface PartParts {
  readonly site: Site
  readonly operation_id: string
  readonly part: RestoredPart
}

export interface PartArchive {
  readonly bytes: Stream.Stream<Uint8Array, AccessError>
  readonly user: RunUser | undefined
  readonly limit: number | undefined
}

/** A hidden name of an operation, which each daemon finds again. */
const hidden = (operation_id: string, role: string): Buffer => {
  const hex = createHash("sha256").update(`${operation_id}/${role}`).digest("hex")
  return Buffer.from(
    `.muster-${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}.tmp`
  )
}

const namesOf = ({ operation_id }: PartParts) => ({
  aside: hidden(operation_id, "aside"),
  complete: hidden(operation_id, "complete"),
  copy: hidden(operation_id, "copy"),
  old: hidden(operation_id, "old")
})

/** Folders whose entries are moved one by one have volumes, mounts or layers in them. */
export const refuseFixed = Effect.fnUntraced(function* ({ part, site }: Pick<PartParts, "part" | "site">) {
  for (const path of part.paths) {
    const place = yield* site.place(path)
    const fixed = site.fixedWithin(path)
    if (place.shared !== undefined)
      return yield* conflict(path, "it lies in a volume or mount, which is no part of a backup")
    if (part.mode === "replace" && fixed !== undefined)
      return yield* conflict(path, `a volume or mount lies at ${fixed}`, "Restore what lies beside it.")
  }
})

/** Refuses what was unpacked if it would be merged into a volume or mount. */
const refuseCovered = Effect.fnUntraced(function* ({ site }: PartParts, tree: fs.FileHandle) {
  for (const target of site.sharedTargets) {
    const names = target.slice(1).split("/").map(bytesOf)
    const found = yield* enterAll(target, tree, names.slice(0, -1)).pipe(
      Effect.flatMap((folder) =>
        Option.isNone(folder) ? Effect.succeedNone : lstatIn(target, folder.value, names.at(-1) ?? "")
      ),
      // A file lies on the way, which is refused as such.
      Effect.catchTag("PathRefused", () => Effect.succeedNone),
      Effect.scoped
    )
    if (Option.isSome(found)) return yield* covered(target)
  }
})

/** Returns whether an entry is wanted, and the paths of which no entry was seen. */
const makeWants = (paths: ReadonlyArray<string>) => {
  const missing = new Set(paths.filter((path) => path !== "/"))
  const latin = new Map(
    paths.map((path) => [path, `/${Buffer.from(nameBytes(path.slice(1))).toString("latin1")}`])
  )
  return {
    missing,
    wants: (name: string): boolean => {
      const entry = `/${name}`
      let isWanted = false
      for (const [path, wanted] of latin) {
        if (entry === wanted) missing.delete(path)
        isWanted ||= isWithin(wanted, entry) || isWithin(entry, wanted)
      }
      return isWanted
    }
  }
}

/** Returns the paths of a part that lie in no other of them. */
const outermost = ({ part: { paths } }: PartParts) =>
  paths.filter((path) => !paths.some((other) => other !== path && isWithin(other, path)))

/** Refuses a path that has no way to it, before anything is put in place: a file or link is where a folder was. */
const refuseWay = Effect.fnUntraced(function* ({ site }: PartParts, path: string) {
  yield* site.foldersTo(yield* site.place(parentOf(path)))
}, Effect.scoped)

const rootOf = ({ site }: PartParts) => Effect.flatMap(site.place("/"), (place) => site.folderAt(place))

const placingOf = (parts: PartParts): Placing => ({
  site: parts.site,
  overwrite: "replace",
  aside: namesOf(parts).copy,
  // The unpacked bytes were counted before.
  take: () => Effect.void
})

/** Unpacks the wanted entries, unless an earlier daemon has, and decides for them: {@link finishPart} comes next. */
export const unpackPart = Effect.fnUntraced(function* (
  parts: PartParts,
  { bytes, limit, user }: PartArchive
): Effect.fn.Return<void, AccessError | ArchiveRefused, Scope.Scope> {
  const { aside, complete } = namesOf(parts)
  const root = yield* rootOf(parts)
  const { operation_id, part, site } = parts
  const decide = writeAtomic(join(site.folder, PART), JSON.stringify({ operation_id, part }))
  if (Option.isSome(yield* lstatIn("/", root, complete))) return yield* decide
  yield* refuseFixed(parts)
  const folder = { folder: root, name: aside }
  yield* removeInside("/", folder)
  const { missing, wants } = makeWants(parts.part.paths)
  yield* Effect.gen(function* () {
    yield* io("/", () => fs.mkdir(within(root, aside), 0o700))
    yield* unpackFiles(bytes, String(within(root, aside)), { limit, user, wants })
    const [lacking] = missing
    if (lacking !== undefined) return yield* lacks(lacking)
    const tree = yield* enter("/", root, aside)
    if (parts.part.mode === "merge" && Option.isSome(tree)) {
      yield* refuseCovered(parts, tree.value)
      yield* checkPlacing(placingOf(parts), { path: "/", from: tree.value, to: root })
    } else yield* Effect.forEach(outermost(parts), (path) => refuseWay(parts, path), { discard: true })
    yield* decide
    yield* renameAt("/", folder, { folder: root, name: complete })
    yield* syncFolder("/", root)
  }).pipe(Effect.onError(() => Effect.ignore(removeInside("/", folder))))
}, Effect.scoped)

/** Replaces what lies at a path by what was unpacked for it. Each of its renames can be repeated by a later daemon. */
const replacePath = Effect.fnUntraced(function* (parts: PartParts, tree: fs.FileHandle, path: string) {
  const { site } = parts
  const names = path.slice(1).split("/").map(bytesOf)
  const folder = yield* enterAll(path, tree, names.slice(0, -1))
  const name = names.at(-1)
  if (Option.isNone(folder) || name === undefined) return
  const from = { folder: folder.value, name }
  // It is in place already.
  if (Option.isNone(yield* lstatIn(path, from.folder, name))) return
  const to = yield* site.parent(yield* site.place(path), () => {})
  const old = { folder: yield* rootOf(parts), name: namesOf(parts).old }
  yield* removeInside(path, old)
  // Aside at once, so that no half of it is ever in place. The kernel does not rename folders of a lower layer.
  yield* Effect.catchIf(
    renameAt(path, to, old),
    ({ code }) => code === "ENOENT" || code === "EXDEV",
    () => removeInside(path, to)
  )
  yield* moveTo(placingOf(parts), { path, from, to })
}, Effect.scoped)

/** Moves what was unpacked into place, and removes what is left of it. */
export const placePart = Effect.fnUntraced(function* (
  parts: PartParts
): Effect.fn.Return<void, AccessError, Scope.Scope> {
  const { aside, complete, old } = namesOf(parts)
  const root = yield* rootOf(parts)
  yield* removeInside("/", { folder: root, name: aside })
  const tree = yield* enter("/", root, complete)
  if (Option.isNone(tree)) return
  if (parts.part.mode === "merge")
    yield* placeTree(placingOf(parts), { path: "/", from: tree.value, to: root }, () => {})
  else
    yield* Effect.forEach(outermost(parts), (path) => replacePath(parts, tree.value, path), { discard: true })
  // Before the files are gone that show a later daemon that it was placed.
  yield* notePlaced(parts.site.folder, parts.operation_id)
  for (const name of [old, complete]) yield* removeInside("/", { folder: root, name })
  yield* syncFolder("/", root)
}, Effect.uninterruptible)

const read = recordReader(Schema.Struct({ operation_id: Schema.String, part: RestoredPart }))

/** Puts the part in place that a record beside the files names. What fails is not tried again: the files change then. */
export const finishPart: FinishPart = (folder, spec, layout) => {
  const path = join(folder, PART)
  return Effect.gen(function* () {
    const record = yield* read(path)
    if (record !== undefined) yield* placePart({ ...record, site: new Site(folder, spec, layout, {}) })
  }).pipe(
    Effect.scoped,
    Effect.mapError((error) => {
      if (error._tag === "IoError") return error
      const refusal = toTaskError(error)
      return new IoError({ code: "EIO", message: "detail" in refusal ? refusal.detail : refusal._tag })
    }),
    Effect.ensuring(Effect.ignore(removeTree(path))),
    Effect.uninterruptible
  )
}
