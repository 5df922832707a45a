/** The record of the base from which a plain instance was copied, in `<server>/files.json`. */
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { lstat, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"

/**
 * The generations of the folder `files`, by its inode: while a new folder replaces an old one, there is an entry for
 * each.
 */
const PlainRecord = Schema.Struct({
  format: Schema.Literal(1),
  bases: Schema.Array(Schema.Struct({ inode: Schema.Finite, generation: Schema.String }))
})
type Bases = (typeof PlainRecord.Type)["bases"]

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(PlainRecord))

const recordPath = (folder: string) => join(folder, "files.json")

/** Returns the generations; a file that cannot be read has none. */
const read = Effect.fnUntraced(function* (folder: string) {
  const text = yield* readText(recordPath(folder)).pipe(orMissing(undefined))
  if (text === undefined) return []
  return yield* decode(text).pipe(
    Effect.map(({ bases }): Bases => bases),
    Effect.orElseSucceed((): Bases => [])
  )
})

const write = (folder: string, bases: Bases) =>
  writeAtomic(recordPath(folder), JSON.stringify({ format: 1, bases }))

const inodeOf = (path: string) => Effect.map(lstat(path), (stats) => stats?.ino)

/** Returns the generation from which `files` was copied; undefined: unknown. */
export const plainBase = Effect.fnUntraced(function* (folder: string, files: string) {
  const bases = yield* read(folder)
  const inode = yield* inodeOf(files)
  const own = bases.find((base) => base.inode === inode)
  // A restored copy has other inodes.
  return (own ?? (bases.length === 1 ? bases[0] : undefined))?.generation
})

/** Records that the folder at `path`, which is or becomes `files`, was copied from a generation. */
export const recordPlainBase = Effect.fnUntraced(function* (
  folder: string,
  path: string,
  generation: string
) {
  const inode = yield* inodeOf(path)
  if (inode === undefined) return
  const others = (yield* read(folder)).filter((base) => base.inode !== inode)
  yield* write(folder, [...others, { inode, generation }])
})

/** Removes the records of folders that `files` has replaced. */
export const settlePlainBase = Effect.fnUntraced(function* (folder: string, files: string) {
  const inode = yield* inodeOf(files)
  const bases = yield* read(folder)
  const own = bases.filter((base) => base.inode === inode)
  if (own.length > 0 && own.length < bases.length) yield* write(folder, own)
})

/** Returns the generations that the record of a server names. */
export const plainBasesOf = (folder: string) =>
  Effect.map(read(folder), (bases) => bases.map(({ generation }) => generation))
