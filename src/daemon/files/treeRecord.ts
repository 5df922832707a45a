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
import { IoError, listFolder, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic, writeNew } from "../disk/replaceFile.ts"
import { plainBasesOf } from "./plainRecord.ts"

/** A lower layer: a folder of the base, of the volumes folder, or of `tree` itself. */
export const TreeLayer = Schema.Struct({
  of: Schema.Literals(["base", "volumes", "own"]),
  parts: Schema.Array(Schema.String)
})
export type TreeLayer = typeof TreeLayer.Type

export const Nested = Schema.Struct({
  /** The path in the instance, as parts. */
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
  /** The generation of the base folder. */
  base: Schema.String,
  /** Parents before children. */
  nested: Schema.Array(Nested),
  /** The quota project; absent: none. */
  project: Schema.optionalKey(Schema.Int)
})
export type TreeRecord = typeof TreeRecord.Type

const TreeRecordJson = Schema.fromJsonString(TreeRecord)
const decode = Schema.decodeUnknownEffect(TreeRecordJson)

/** Returns the folder of the generations of base folders. */
export const generationsDir = (baseDir: string): string => join(baseDir, ".generations")

const recordPath = (tree: string) => join(tree, "tree.json")

/** Returns the record of a `tree` folder; undefined: none. */
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
  const names = yield* listFolder(serversDir)
  const found = yield* Effect.forEach(
    names.flatMap((name) => [join(serversDir, name, TREE), join(serversDir, name, TREE_NEXT)]),
    (tree) =>
      // There may be files beside the folders of servers.
      Effect.catchIf(
        readTreeRecord(tree),
        (error) => error.code === "ENOTDIR",
        () => Effect.succeed(undefined)
      ),
    { concurrency: 16 }
  )
  const plain = yield* Effect.forEach(
    names,
    (name) =>
      plainBasesOf(join(serversDir, name)).pipe(
        Effect.catchIf(
          (error) => error.code === "ENOTDIR",
          () => Effect.succeed([])
        )
      ),
    { concurrency: 16 }
  )
  return new Set([...found.flatMap((record) => (record === undefined ? [] : [record.base])), ...plain.flat()])
})
