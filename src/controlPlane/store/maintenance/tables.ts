/** Reads the tables of a database and their rows without their meaning. */
import { createHash } from "node:crypto"
import { Effect, Option, Schema, Stream } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { journalTable } from "../journal/journalTable.ts"
import { currentSchema, MIGRATIONS_TABLE, refusal, schemaVersion } from "../migrations/migrate.ts"
import { readRows } from "../sql/rows.ts"

const ROWS = 500

const Value = Schema.Union([Schema.Null, Schema.String, Schema.Finite])
const Row = Schema.Record(Schema.String, Value)
export type Row = typeof Row.Type

const readNames = readRows(Schema.Struct({ name: Schema.String }))
const readLinks = readRows(Schema.Struct({ child: Schema.String, parent: Schema.String }))
const readCount = readRows(Schema.Struct({ count: Schema.Int }))
const readData = readRows(Row)

type Read<A> = Effect.Effect<A, SqlError.SqlError>

/** Returns the names of an installation's tables; rows come after the rows that they refer to. */
export const tableNames = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient
): Effect.fn.Return<ReadonlyArray<string>, SqlError.SqlError> {
  const [names, links] = yield* Effect.all([
    readNames(
      sql.onDialectOrElse({
        sqlite: () =>
          sql`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`,
        orElse: () =>
          sql`SELECT relname AS name FROM pg_class
              WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY relname`
      })
    ),
    readLinks(
      sql.onDialectOrElse({
        sqlite: () =>
          sql`SELECT m.name AS child, f."table" AS parent
              FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`,
        orElse: () =>
          sql`SELECT child.relname AS child, parent.relname AS parent FROM pg_constraint
              JOIN pg_class child ON child.oid = conrelid JOIN pg_class parent ON parent.oid = confrelid
              WHERE contype = 'f' AND child.relnamespace = current_schema()::regnamespace`
      })
    )
  ])
  const ordered: Array<string> = []
  const add = (name: string): void => {
    if (ordered.includes(name)) return
    for (const { child, parent } of links) if (child === name && parent !== name) add(parent)
    ordered.push(name)
  }
  for (const { name } of names) if (name !== MIGRATIONS_TABLE) add(name)
  return ordered
})

export const countRows = (sql: SqlClient.SqlClient, table: string): Read<number> =>
  Effect.map(readCount(sql`SELECT COUNT(*) AS count FROM ${sql(table)}`), ([row]) => row?.count ?? 0)

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
export const rowsOf = (
  sql: SqlClient.SqlClient,
  table: string
): Stream.Stream<ReadonlyArray<Row>, SqlError.SqlError> =>
  // A prepared FETCH keeps the columns of its cursor, so each table has a cursor of its own.
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
      Stream.unwrap(
        Effect.as(
          sql`DECLARE ${sql(`all_${table}`)} NO SCROLL CURSOR FOR SELECT * FROM ${sql(table)}`,
          Stream.paginate(0, () =>
            Effect.map(
              readData(sql`FETCH FORWARD ${sql.literal(String(ROWS))} FROM ${sql(`all_${table}`)}`),
              (rows) => [[rows], rows.length === 0 ? Option.none<number>() : Option.some(0)] as const
            )
          ).pipe(Stream.concat(Stream.fromEffectDrain(sql`CLOSE ${sql(`all_${table}`)}`)))
        )
      )
  })

/** The number of a table's rows, and a hash of their content that ignores the order of rows and columns. */
export interface Digest {
  readonly rows: number
  readonly hash: string
}

const MODULUS = 1n << 256n

export class Digester {
  #rows = 0
  #sum = 0n

  add(rows: ReadonlyArray<Row>): void {
    for (const row of rows) {
      const text = JSON.stringify(Object.entries(row).sort(([one], [other]) => (one < other ? -1 : 1)))
      this.#sum = (this.#sum + BigInt(`0x${createHash("sha256").update(text).digest("hex")}`)) % MODULUS
      this.#rows += 1
    }
  }

  get digest(): Digest {
    return { rows: this.#rows, hash: this.#sum.toString(16).padStart(64, "0") }
  }
}

export const digestOf = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, table: string) {
  const digester = new Digester()
  yield* Stream.runForEach(rowsOf(sql, table), (rows) => Effect.sync(() => digester.add(rows)))
  return digester.digest
})
