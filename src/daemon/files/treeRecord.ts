/**
 * What an overlay instance is made of, on disk beside its layers in `<server>/tree`:
 *
 *     tree.json             this record
 *     upper, work           over the base
 *     over.<n>/upper, work  over the n-th nested overlay, that of a volume's target
 *     lower.<n>             a copy of the n-th volume, where the volume itself may change meanwhile
 *
 * An instance without it is a plain folder.
 */
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { IoError, listFolder, orMissing, readText, writeAtomic } from "../disk/fsio.ts"

/** A lower layer: a folder of the base, of the volumes folder, or of `tree` itself. */
export const TreeLayer = Schema.Struct({
  of: Schema.Literals(["base", "volumes", "own"]),
  parts: Schema.Array(Schema.String)
})
export type TreeLayer = typeof TreeLayer.Type

export const Nested = Schema.Struct({
  /** Where in the instance; its parts. */
  target: Schema.Array(Schema.String),
  /** The uppermost first. */
  lower: Schema.NonEmptyArray(TreeLayer),
  /** Whether a volume hides what the base has there, whatever that is. */
  covered: Schema.Boolean
})
export type Nested = typeof Nested.Type

export const TreeRecord = Schema.Struct({
  format: Schema.Literal(1),
  /** Names this composition in the mount table: another one is mounted anew. */
  id: Schema.String,
  /** Generation of the base folder. */
  base: Schema.String,
  /** Those above others first. */
  nested: Schema.Array(Nested),
  /** Project of the file system's quota; absent: none. */
  project: Schema.optionalKey(Schema.Int)
})
export type TreeRecord = typeof TreeRecord.Type

const TreeRecordJson = Schema.fromJsonString(TreeRecord)
const decode = Schema.decodeUnknownEffect(TreeRecordJson)
const encode = Schema.encodeUnknownEffect(TreeRecordJson)

/** Folder of the generations of base folders. */
export const generationsDir = (base_dir: string): string => join(base_dir, ".generations")

const recordPath = (tree: string) => join(tree, "tree.json")

/** The record of a `tree` folder; undefined where there is none. */
export const readTreeRecord = Effect.fnUntraced(function* (tree: string) {
  const text = yield* readText(recordPath(tree)).pipe(orMissing(undefined))
  if (text === undefined) return undefined
  return yield* Effect.mapError(
    decode(text),
    (error) =>
      new IoError({ code: "EINVAL", message: `${recordPath(tree)}: ${error.message.split("\n")[0]}` })
  )
})

export const writeTreeRecord = (tree: string, record: TreeRecord): Effect.Effect<void, IoError> =>
  encode(record).pipe(
    Effect.orDie, // the record is of the schema's own type
    Effect.flatMap((text) => writeAtomic(recordPath(tree), text))
  )

/** Folders of a server's folder that have a record: the one in use, and one that is to take its place. */
export const TREE = "tree"
export const TREE_NEXT = "tree.next"

/** Generations of base folders that the servers below a folder have as a layer. */
export const basesInUse = Effect.fnUntraced(function* (servers_dir: string) {
  const names = yield* listFolder(servers_dir)
  const found = yield* Effect.forEach(
    names.flatMap((name) => [join(servers_dir, name, TREE), join(servers_dir, name, TREE_NEXT)]),
    (tree) =>
      // Beside servers there may be files.
      Effect.catchIf(
        readTreeRecord(tree),
        (error) => error.code === "ENOTDIR",
        () => Effect.succeed(undefined)
      ),
    { concurrency: 16 }
  )
  return new Set(found.flatMap((record) => (record === undefined ? [] : [record.base])))
})
