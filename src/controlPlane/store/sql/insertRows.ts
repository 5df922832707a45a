import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

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
