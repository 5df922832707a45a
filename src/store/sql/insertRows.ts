import { Array as Arr, Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

/** Rows of one INSERT: below the parameter limit of PostgreSQL. */
const ROWS = 500

/** The only parameter of a statement without results that SQLite runs once for each of these lists of parameters. */
export class EachOf {
  readonly lists: ReadonlyArray<ReadonlyArray<unknown>>

  constructor(lists: ReadonlyArray<ReadonlyArray<unknown>>) {
    this.lists = lists
  }
}

/**
 * Inserts rows that all have the columns of the first. If it fails, some of the rows may be there: it is part of a
 * savepoint or transaction that undoes them.
 *
 * @param onConflict the end of the statement, such as `ON CONFLICT DO NOTHING`
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
    // The statements are pipelined: the first failure is the result.
    orElse: () =>
      Effect.forEach(
        Arr.chunksOf(rows, ROWS),
        (some) => sql`INSERT INTO ${sql(table)} ${sql.insert(some)} ${sql.literal(onConflict)}`,
        { concurrency: "unbounded", discard: true }
      )
  })
}
