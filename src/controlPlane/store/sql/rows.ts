/** Column types of both databases: the stored form and the domain's form. */
import { Array as Arr, Effect, Schema, SchemaTransformation } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import { allOf, type Read, type Write, write } from "./Transaction.ts"

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

/** Returns the first row of `query`, if there is one, decoded like {@link readRows}. */
export const firstRow = <A, I>(row: Schema.Codec<A, I>) => {
  const read = readRows(row)
  return (query: Read<ReadonlyArray<unknown>>): Read<A | undefined> => Effect.map(read(query), ([row]) => row)
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

/** Returns the conditions that columns have the given values; an absent value selects all rows. */
export const equalTo = (
  sql: SqlClient.SqlClient,
  values: Readonly<Record<string, string | undefined>>
): ReadonlyArray<Statement.Fragment | false> =>
  Object.entries(values).map(([column, value]) => value !== undefined && sql`${sql(column)} = ${value}`)

export interface RowPage {
  readonly limit: number
  /** Only the rows that follow the one with this id. */
  readonly after?: string | undefined
}

/**
 * Returns a function that reads rows of a table with the given conditions, newest first, unless no row has the id
 * `after`. `among` also holds for that row, which need not meet the conditions any more.
 */
export const newestFirst =
  <A>(
    sql: SqlClient.SqlClient,
    table: string,
    read: (query: Read<ReadonlyArray<unknown>>) => Read<ReadonlyArray<A>>,
    time = "created_at"
  ) =>
  (
    { after, limit }: RowPage,
    conditions: ReadonlyArray<Statement.Fragment | false> = [],
    among: Statement.Fragment = sql`1 = 1`
  ): Read<ReadonlyArray<A> | undefined> => {
    const last = sql`SELECT ${sql(time)}, id FROM ${sql(table)} WHERE id = ${after ?? ""} AND ${among}`
    const later = after !== undefined && sql`(${sql(time)}, id) < (${last})`
    const rows = read(sql`SELECT * FROM ${sql(table)} WHERE ${allOf(sql, [among, ...conditions, later])}
      ORDER BY ${sql(time)} DESC, id DESC LIMIT ${limit}`)
    return after === undefined
      ? rows
      : Effect.flatMap(hasRows(last), (isThere) => (isThere ? rows : Effect.succeed(undefined)))
  }

/** Encodes a row; a value that its schema refuses is a defect of the caller. */
export const writeRow = <A, I>(row: Schema.Codec<A, I>) => {
  const encode = Schema.encodeEffect(row)
  return (value: A): Effect.Effect<I> => Effect.orDie(encode(value))
}

type Row = Readonly<Record<string, unknown>>

/** PostgreSQL refuses half of a surrogate pair in JSON; as a parameter it becomes U+FFFD. */
const wellFormed = (_: string, value: unknown) => (typeof value === "string" ? value.toWellFormed() : value)

const quoted = (column: string) => `"${column}"`

/** Runs a statement on `given`, the rows of its only parameter: it has one plan for any number of rows. */
const withRows = (
  sql: SqlClient.SqlClient,
  table: string,
  rows: ReadonlyArray<Row>,
  statement: (given: string, columns: ReadonlyArray<string>) => string
): Effect.Effect<void, SqlError.SqlError> => {
  const [first] = rows
  if (first === undefined) return Effect.void
  const columns = Object.keys(first)
  const given = sql.onDialectOrElse({
    sqlite: () =>
      `(SELECT ${columns.map((column) => `value ->> '${column}' AS "${column}"`).join(", ")} FROM json_each(?)) AS given`,
    orElse: () => `json_populate_recordset(NULL::${table}, $1::json) AS given`
  })
  return Effect.asVoid(sql.unsafe(statement(given, columns), [JSON.stringify(rows, wellFormed)]))
}

/** Inserts rows with the columns of the first. `onConflict` ends the statement. */
export const insertRows = (
  sql: SqlClient.SqlClient,
  table: string,
  rows: ReadonlyArray<Row>,
  onConflict = ""
): Effect.Effect<void, SqlError.SqlError> =>
  withRows(sql, table, rows, (given, columns) => {
    const names = columns.map(quoted).join(", ")
    // Without WHERE, SQLite reads ON as the condition of a join.
    return `INSERT INTO ${table} (${names}) SELECT ${names} FROM ${given} WHERE 1 = 1 ${onConflict}`
  })

/** Inserts rows, or replaces the other columns where `key` exists. */
export const upsertRows = (
  sql: SqlClient.SqlClient,
  table: string,
  key: string,
  rows: ReadonlyArray<Row>
): Effect.Effect<void, SqlError.SqlError> => {
  const replaced = Object.keys(rows[0] ?? {}).filter((column) => column !== key)
  const values = replaced.map((column) => `"${column}" = excluded."${column}"`)
  return insertRows(sql, table, rows, `ON CONFLICT (${key}) DO UPDATE SET ${values.join(", ")}`)
}

/** A row by its `id`, and other columns of it. */
export type UpdatedRow = Row & { readonly id: string }

/** Sets the columns of rows by their different ids; all have the columns of the first. */
export const updateRows = (
  sql: SqlClient.SqlClient,
  table: string,
  rows: ReadonlyArray<UpdatedRow>
): Effect.Effect<void, SqlError.SqlError> =>
  withRows(sql, table, rows, (given, columns) => {
    const values = columns
      .filter((column) => column !== "id")
      .map((column) => `"${column}" = given."${column}"`)
    return `UPDATE ${table} SET ${values.join(", ")} FROM ${given} WHERE ${table}.id = given.id`
  })

/** The statements of a table whose rows have a schema, and a column `key` that identifies them. */
export const tableOf = <A, I extends Row>(name: string, row: Schema.Codec<A, I>, key = "id") => {
  const encode = writeRow(row)
  const read = readRows(row)
  const first = firstRow(row)
  const encoded = (value: A, statement: (row: I) => Read<unknown>, how: string): Write =>
    write(Effect.flatMap(encode(value), statement)).pipe(inSpan(`${name}.${how}`))
  return {
    encode,
    read,
    first,
    on: (sql: SqlClient.SqlClient) => ({
      insert: (value: A) =>
        encoded(value, (row) => sql`INSERT INTO ${sql(name)} ${sql.insert(row)}`, "insert"),
      /** Inserts a row, or replaces the other columns of the one with its key. */
      put: (value: A) => encoded(value, (row) => upsertRows(sql, name, key, [row]), "put"),
      find: (id: string) => first(sql`SELECT * FROM ${sql(name)} WHERE ${sql(key)} = ${id}`),
      remove: (id: string) => write(sql`DELETE FROM ${sql(name)} WHERE ${sql(key)} = ${id}`)
    })
  }
}
