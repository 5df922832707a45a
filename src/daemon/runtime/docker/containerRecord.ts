import { join } from "node:path"
import { Effect, Schema } from "effect"
import { type IoError, orMissing, readText } from "../../disk/fsio.ts"
import { writeAtomic } from "../../disk/replaceFile.ts"

/**
 * The run of a server's container. The record is written before the container is created, has its id before the
 * container is started, and has the exit before the container is removed. So every end is known, and also that a run
 * never started.
 */
export const ContainerRecord = Schema.Struct({
  token: Schema.String,
  container: Schema.optionalKey(Schema.String),
  exit: Schema.optionalKey(
    Schema.Struct({
      code: Schema.Int,
      out_of_memory: Schema.Boolean,
      never_began: Schema.optionalKey(Schema.Literal(true)),
      with_host: Schema.optionalKey(Schema.Literal(true)),
      why: Schema.optionalKey(
        Schema.Struct({
          message: Schema.String,
          code: Schema.optionalKey(Schema.String),
          next: Schema.optionalKey(Schema.String)
        })
      )
    })
  )
})
export type ContainerRecord = typeof ContainerRecord.Type

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(ContainerRecord))

const pathIn = (folder: string) => join(folder, "container.json")

export const writeContainerRecord = (folder: string, record: ContainerRecord): Effect.Effect<void, IoError> =>
  writeAtomic(pathIn(folder), JSON.stringify(record))

/** Returns the record of a run; undefined: none, or of another run. */
export const readContainerRecord = (folder: string, token: string) =>
  readText(pathIn(folder)).pipe(
    Effect.flatMap(decode),
    Effect.map((record) => (record.token === token ? record : undefined)),
    Effect.catchTag("SchemaError", () => Effect.succeed(undefined)),
    orMissing(undefined),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), undefined))
  )
