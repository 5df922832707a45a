/** Reads the tables of a database and their rows without their meaning. */
import { hash } from "node:crypto"
import { Effect, Option, Schema, Stream } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { journalTable } from "../journal/journalTable.ts"
import { currentSchema, MIGRATIONS_TABLE, refusal, schemaVersion } from "../migrations/migrate.ts"
import { countOf, readRows } from "../sql/rows.ts"
import type { Read } from "../sql/Transaction.ts"

const ROWS = 500

const Value = Schema.Union([Schema.Null, Schema.String, Schema.Finite])
const Row = Schema.Record(Schema.String, Value)
type Row = typeof Row.Type

const readNames = readRows(Schema.Struct({ name: Schema.String }))
const readData = readRows(Row)

/** Returns the names of an installation's tables in the order of their creation: after those that they refer to. */
export const tableNames = (sql: SqlClient.SqlClient): Read<ReadonlyArray<string>> =>
  Effect.map(
    readNames(
      sql.onDialectOrElse({
        sqlite: () =>
          sql`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid`,
        orElse: () =>
          sql`SELECT relname AS name FROM pg_class
              WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY oid`
      })
    ),
    (rows) => rows.map(({ name }) => name).filter((name) => name !== MIGRATIONS_TABLE)
  )

export const countRows = (sql: SqlClient.SqlClient, table: string): Read<number> =>
  countOf(sql`SELECT COUNT(*) AS count FROM ${sql(table)}`)

export interface DatabaseStatus {
  /** The version is 0 if there is no schema yet. */
  readonly version: number
  /** Why this program cannot use the database. */
  readonly refusal: string | undefined
  readonly known: number
  readonly counts: ReadonlyArray<{ readonly table: string; readonly rows: number }>
  /** The cursors of the oldest and newest entry, if there is a journal. */
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

/** Streams every row of a table in pages; within a transaction. */
const rowsOf = (
  sql: SqlClient.SqlClient,
  table: string
): Stream.Stream<ReadonlyArray<Row>, SqlError.SqlError> =>
  sql.onDialectOrElse({
    sqlite: () =>
      Stream.paginate(0, (after) =>
        Effect.map(
          readData(
            sql`SELECT rowid AS "#", * FROM ${sql(table)} WHERE rowid > ${after} ORDER BY rowid LIMIT ${ROWS}`
          ),
          (numbered) => {
            const last = numbered.at(-1)?.["#"]
            const rows = numbered.map(({ "#": _, ...row }) => row)
            return [[rows], typeof last === "number" ? Option.some(last) : Option.none<number>()] as const
          }
        )
      ),
    orElse: () =>
      Stream.mapEffect(Stream.chunks(Stream.rechunk(sql`SELECT * FROM ${sql(table)}`.stream, ROWS)), (rows) =>
        readData(Effect.succeed(rows))
      )
  })

/** The number of a table's rows, and a hash of their content that ignores the order of rows and columns. */
export interface Digest {
  readonly rows: number
  readonly hash: string
}

const MODULUS = 1n << 256n

const hashOf = (row: Row): bigint => {
  const text = JSON.stringify(Object.entries(row).sort(([one], [other]) => (one < other ? -1 : 1)))
  return BigInt(`0x${hash("sha256", text)}`)
}

/** Reads every row of a table, also for `use`, within a transaction. */
export const digestOf = (
  sql: SqlClient.SqlClient,
  table: string,
  use: (rows: ReadonlyArray<Row>) => Read<void> = () => Effect.void
): Read<Digest> =>
  rowsOf(sql, table).pipe(
    Stream.tap(use),
    Stream.runFold(
      () => ({ rows: 0, sum: 0n }),
      ({ rows, sum }, page) => ({
        rows: rows + page.length,
        sum: page.reduce((total, row) => (total + hashOf(row)) % MODULUS, sum)
      })
    ),
    Effect.map(({ rows, sum }) => ({ rows, hash: sum.toString(16).padStart(64, "0") }))
  )
