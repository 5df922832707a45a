/** Column types of both databases: the stored form and the domain's form. */
import { Array as Arr, Effect, Option, Schema, SchemaTransformation } from "effect"
import { ServerId } from "../../../contract/domain/Id.ts"
import type { Read } from "./Transaction.ts"

/** A 64-bit column; PostgreSQL returns it as text. */
export const IntColumn = Schema.Union([Schema.Int, Schema.NumberFromString.check(Schema.isInt())])

export const BooleanColumn = Schema.Literals([0, 1]).pipe(
  Schema.decodeTo(
    Schema.Boolean,
    SchemaTransformation.transform({
      decode: (flag): boolean => flag === 1,
      encode: (value) => (value ? (1 as const) : (0 as const))
    })
  )
)

export const JsonColumn = <S extends Schema.Constraint>(schema: S) => Schema.fromJsonString(schema)

/** Runs `query` and decodes its rows. Rows that do not decode are defects: only this program writes them. */
export const readRows = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row))
  return (query: Read<ReadonlyArray<unknown>>): Read<ReadonlyArray<A>> =>
    Effect.flatMap(query, (rows) => Effect.orDie(decode(rows)))
}

/** Returns the first row of `query`, decoded like {@link readRows}. */
export const firstRow = <A, I>(row: Schema.Codec<A, I>) => {
  const read = readRows(row)
  return (query: Read<ReadonlyArray<unknown>>): Read<Option.Option<A>> =>
    Effect.map(read(query), (rows) => Option.fromUndefinedOr(rows[0]))
}

const readCount = readRows(Schema.Struct({ count: IntColumn }))

/** Returns the `count` of the only row of `query`. */
export const countOf = (query: Read<ReadonlyArray<unknown>>): Read<number> =>
  Effect.map(readCount(query), ([row]) => row?.count ?? 0)

/** Whether `query` returns a row. */
export const hasRows = (query: Read<ReadonlyArray<unknown>>): Read<boolean> =>
  Effect.map(query, (rows) => rows.length > 0)

const readServerIdRows = readRows(Schema.Struct({ server_id: ServerId }))

/** Returns the column `server_id` of the rows of `query`. */
export const readServerIds = (query: Read<ReadonlyArray<unknown>>): Read<ReadonlyArray<ServerId>> =>
  Effect.map(readServerIdRows(query), (rows) => rows.map(({ server_id }) => server_id))

/** Ids or rows of one statement: below the parameter limits of both databases. */
export const CHUNK = 500

/** Reads rows by any number of ids. */
export const byIds = <Id, A>(
  ids: ReadonlyArray<Id>,
  read: (some: ReadonlyArray<Id>) => Read<ReadonlyArray<A>>
): Read<ReadonlyArray<A>> =>
  Effect.map(Effect.forEach(Arr.chunksOf(ids, CHUNK), read), (found) => found.flat())

/** Encodes a row; a value that its schema refuses is a defect of the caller. */
export const writeRow = <A, I>(row: Schema.Codec<A, I>) => {
  const encode = Schema.encodeEffect(row)
  return (value: A): Effect.Effect<I> => Effect.orDie(encode(value))
}
