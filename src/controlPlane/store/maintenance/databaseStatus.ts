import { Effect, Option } from "effect"
import { SqlClient } from "effect/sql"
import { journalTable } from "../journal/journalTable.ts"
import { currentSchema, refusal, schemaVersion } from "../migrations/migrate.ts"
import { countRows, tableNames } from "./tables.ts"

/** The state of a database. */
export interface DatabaseStatus {
  /** 0: no schema yet. */
  readonly version: number
  /** Why this program cannot use the database. */
  readonly refusal: string | undefined
  /** The schema version of this program. */
  readonly known: number
  readonly counts: ReadonlyArray<{ readonly table: string; readonly rows: number }>
  /** Cursors of the oldest and newest entry of the journal; undefined: there is no journal. */
  readonly journal: { readonly oldest: number; readonly newest: number } | undefined
}

/** Reads the state; changes nothing, whatever the schema. */
export const databaseStatus = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const version = yield* currentSchema
  const tables = version === 0 ? [] : yield* tableNames(sql)
  const counts = yield* Effect.forEach(tables, (table) =>
    Effect.map(countRows(sql, table), (rows) => ({ table, rows }))
  )
  const journal = tables.includes("journal") ? yield* journalTable(sql).bounds : undefined
  return {
    version,
    refusal: Option.getOrUndefined(yield* refusal)?.message,
    known: schemaVersion,
    counts,
    journal
  } satisfies DatabaseStatus
})
