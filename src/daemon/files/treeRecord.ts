/**
 * The record of an overlay instance, beside its layers in `<server>/tree`:
 *
 *     tree.json             this record
 *     upper, work           over the base
 *     over.<n>/upper, work  over the n-th nested overlay, that of a volume's target
 *     lower.<n>             a copy of the n-th volume, if the volume may change meanwhile
 *
 * An instance without this record is a plain folder.
 */
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { IoError, listFolder, lstat, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic, writeNew } from "../disk/replaceFile.ts"

/** The generations of `files` by inode, one for each folder while a new folder replaces an old one. */
const PlainRecord = Schema.Struct({
  format: Schema.Literal(1),
  bases: Schema.Array(Schema.Struct({ inode: Schema.Finite, generation: Schema.String }))
})
type Bases = (typeof PlainRecord.Type)["bases"]

const decodePlain = Schema.decodeUnknownEffect(Schema.fromJsonString(PlainRecord))

const plainPath = (folder: string) => join(folder, "files.json")

/** Returns the generations; a file that cannot be read has none. */
const readBases = Effect.fnUntraced(function* (folder: string) {
  const text = yield* readText(plainPath(folder)).pipe(orMissing(undefined))
  if (text === undefined) return []
  return yield* decodePlain(text).pipe(
    Effect.map(({ bases }): Bases => bases),
    Effect.orElseSucceed((): Bases => [])
  )
})

const writeBases = (folder: string, bases: Bases) =>
  writeAtomic(plainPath(folder), JSON.stringify({ format: 1, bases }))

const inodeOf = (path: string) => Effect.map(lstat(path), (stats) => stats?.ino)

export const plainBase = Effect.fnUntraced(function* (folder: string, files: string) {
  const bases = yield* readBases(folder)
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
  const others = (yield* readBases(folder)).filter((base) => base.inode !== inode)
  yield* writeBases(folder, [...others, { inode, generation }])
})

/** Removes the records of folders that `files` has replaced. */
export const settlePlainBase = Effect.fnUntraced(function* (folder: string, files: string) {
  const inode = yield* inodeOf(files)
  const bases = yield* readBases(folder)
  const own = bases.filter((base) => base.inode === inode)
  if (own.length > 0 && own.length < bases.length) yield* writeBases(folder, own)
})

/** A lower layer: a folder of the base, of the volumes folder, or of `tree` itself. */
export const TreeLayer = Schema.Struct({
  of: Schema.Literals(["base", "volumes", "own"]),
  parts: Schema.Array(Schema.String)
})
export type TreeLayer = typeof TreeLayer.Type

export const Nested = Schema.Struct({
  target: Schema.Array(Schema.String),
  /** The top one first. */
  lower: Schema.NonEmptyArray(TreeLayer),
  /** Whether a volume hides the entry of the base there, whatever its type. */
  covered: Schema.Boolean
})
export type Nested = typeof Nested.Type

export const TreeRecord = Schema.Struct({
  format: Schema.Literal(1),
  /** The name of this composition in the mount table; a change requires a new mount. */
  id: Schema.String,
  base: Schema.String,
  /** Parents before children. */
  nested: Schema.Array(Nested)
})
export type TreeRecord = typeof TreeRecord.Type

const TreeRecordJson = Schema.fromJsonString(TreeRecord)
const decode = Schema.decodeUnknownEffect(TreeRecordJson)

export const generationsDir = (baseDir: string): string => join(baseDir, ".generations")

const recordPath = (tree: string) => join(tree, "tree.json")

export const readTreeRecord = Effect.fnUntraced(function* (tree: string) {
  const text = yield* readText(recordPath(tree)).pipe(orMissing(undefined))
  if (text === undefined) return undefined
  return yield* Effect.mapError(
    decode(text),
    (error) =>
      new IoError({ code: "EINVAL", message: `${recordPath(tree)}: ${error.message.split("\n")[0]}` })
  )
})

/** Writes the record of a tree that is in place, or that the record puts in place. */
export const writeTreeRecord = (tree: string, record: typeof TreeRecord.Encoded) =>
  writeAtomic(recordPath(tree), JSON.stringify(record))

/** Writes the record of a tree that is renamed when it is complete. */
export const writeNewTreeRecord = (tree: string, record: typeof TreeRecord.Encoded) =>
  writeNew(recordPath(tree), JSON.stringify(record))

/** Folders of a server with a record: the current one, and its replacement. */
export const TREE = "tree"
export const TREE_NEXT = "tree.next"

/** Returns the generations that the servers below a folder use as a layer, or were copied from. */
export const basesInUse = Effect.fnUntraced(function* (serversDir: string) {
  const found = yield* Effect.forEach(
    yield* listFolder(serversDir),
    Effect.fnUntraced(
      function* (name) {
        const folder = join(serversDir, name)
        const plain = (yield* readBases(folder)).map(({ generation }) => generation)
        const trees = yield* Effect.forEach([TREE, TREE_NEXT], (tree) => readTreeRecord(join(folder, tree)))
        return [...plain, ...trees.flatMap((record) => record?.base ?? [])]
      },
      // There may be files beside the folders of servers.
      Effect.catchIf(
        (error) => error.code === "ENOTDIR",
        () => Effect.succeed([])
      )
    ),
    { concurrency: 16 }
  )
  return new Set(found.flat())
})
