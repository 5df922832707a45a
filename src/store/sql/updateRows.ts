import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { EachOf, wellFormed } from "./insertRows.ts"

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
