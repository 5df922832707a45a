import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

/** The only parameter of a statement without results that SQLite runs once for each of these lists of parameters. */
export class EachOf {
  readonly lists: ReadonlyArray<ReadonlyArray<unknown>>

  constructor(lists: ReadonlyArray<ReadonlyArray<unknown>>) {
    this.lists = lists
  }
}

/** PostgreSQL refuses half of a surrogate pair in JSON; as a parameter it becomes U+FFFD. */
const wellFormed = (_: string, value: unknown) => (typeof value === "string" ? value.toWellFormed() : value)

/**
 * Inserts rows with the columns of the first. A failure may leave some, which the caller's savepoint or transaction
 * undoes. `onConflict` ends the statement.
 */
export const insertRows = (
  sql: SqlClient.SqlClient,
  table: string,
  rows: ReadonlyArray<Readonly<Record<string, unknown>>>,
  onConflict = ""
): Effect.Effect<void, SqlError.SqlError> => {
  const [first] = rows
  if (first === undefined) return Effect.void
  return sql.onDialectOrElse({
    // In this process a statement costs no round trip, and one for any number of rows is compiled only once.
    sqlite: () => {
      const columns = Object.keys(first)
      const places = columns.map(() => "?").join(", ")
      return Effect.asVoid(
        sql.unsafe(
          `INSERT INTO ${table} (${columns.map((column) => `"${column}"`).join(", ")}) VALUES (${places}) ${onConflict}`,
          [new EachOf(rows.map((row) => columns.map((column) => row[column])))]
        )
      )
    },
    // One parameter and one plan for any number of rows.
    orElse: () => {
      const columns = Object.keys(first).map((column) => `"${column}"`)
      const names = columns.join(", ")
      return Effect.asVoid(
        sql.unsafe(
          `INSERT INTO ${table} (${names}) SELECT ${names} FROM json_populate_recordset(NULL::${table}, $1::json) ${onConflict}`,
          [JSON.stringify(rows, wellFormed)]
        )
      )
    }
  })
}

/** Inserts rows, or replaces the other columns where `key` exists. */
export const upsertRows = (
  sql: SqlClient.SqlClient,
  table: string,
  key: string,
  rows: ReadonlyArray<Readonly<Record<string, unknown>>>
): Effect.Effect<void, SqlError.SqlError> => {
  const replaced = Object.keys(rows[0] ?? {}).filter((column) => column !== key)
  const values = replaced.map((column) => `"${column}" = excluded."${column}"`)
  return insertRows(sql, table, rows, `ON CONFLICT (${key}) DO UPDATE SET ${values.join(", ")}`)
}

/** A row by its `id`, and other columns of it. */
export type UpdatedRow = Readonly<Record<string, unknown>> & { readonly id: string }

/** Sets the columns of rows by their different ids; all have the columns of the first. */
export const updateRows = (
  sql: SqlClient.SqlClient,
  table: string,
  rows: ReadonlyArray<UpdatedRow>
): Effect.Effect<void, SqlError.SqlError> => {
  const [first] = rows
  if (first === undefined) return Effect.void
  const columns = Object.keys(first).filter((column) => column !== "id")
  return sql.onDialectOrElse({
    sqlite: () =>
      Effect.asVoid(
        sql.unsafe(
          `UPDATE ${table} SET ${columns.map((column) => `"${column}" = ?`).join(", ")} WHERE id = ?`,
          [new EachOf(rows.map((row) => [...columns.map((column) => row[column]), row.id]))]
        )
      ),
    // One parameter and one plan for any number of rows.
    orElse: () =>
      Effect.asVoid(
        sql.unsafe(
          `UPDATE ${table} SET ${columns.map((column) => `"${column}" = given."${column}"`).join(", ")}
            FROM json_populate_recordset(NULL::${table}, $1::json) AS given WHERE ${table}.id = given.id`,
          [JSON.stringify(rows, wellFormed)]
        )
      )
  })
}
