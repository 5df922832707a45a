/**
 * The record of an overlay instance, beside its layers in `<server>/tree`:
 *
 *     tree.json             this record
 *     upper, work           over the base; `upper.building`, `upper.old` while `upper` is replaced
 *     over.<n>/upper, work  over the n-th nested overlay, that of a volume's target
 *     lower.<n>             a copy of the n-th volume, if the volume may change meanwhile
 *
 * An instance without this record is a plain folder, with its base in `<server>/files.json`.
 */
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { IoError, listFolder, orMissing, orOn, readText } from "../disk/fsio.ts"
import { recordReader, writeAtomic, writeNew } from "../disk/replaceFile.ts"

/** The record of a plain instance, beside `files`. */
const PlainRecord = Schema.Struct({ format: Schema.Literal(1), base: Schema.String })
const readPlain = recordReader(PlainRecord)

export const plainPath = (folder: string) => join(folder, "files.json")

/** Returns the generation that the files were copied from, unless the record is missing or unreadable. */
export const plainBase = (folder: string) =>
  Effect.map(readPlain(plainPath(folder)), (record) => record?.base)

/** Records the generation, once the files are in place: until then, an interrupted change is repeated. */
export const recordPlainBase = (folder: string, base: string) =>
  writeAtomic(plainPath(folder), JSON.stringify({ format: 1, base }))

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

/** The folder of a server's layers with their record. */
export const TREE = "tree"

/** Returns the generations that the servers below a folder use as a layer, or were copied from. */
export const basesInUse = Effect.fnUntraced(function* (serversDir: string) {
  const found = yield* Effect.forEach(
    yield* listFolder(serversDir),
    Effect.fnUntraced(
      function* (name) {
        const folder = join(serversDir, name)
        const layered = yield* readTreeRecord(join(folder, TREE))
        return [yield* plainBase(folder), layered?.base].filter((base) => base !== undefined)
      },
      // There may be files beside the folders of servers.
      orOn([], "ENOTDIR")
    ),
    { concurrency: 16 }
  )
  return new Set(found.flat())
})
