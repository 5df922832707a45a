/** Everything that SQLite and PostgreSQL want said differently in statements that are otherwise the same. */
import { Clock, Effect, Schema } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { IntColumn, readRows } from "./rows.ts"
import { isAborted } from "./sqlErrors.ts"

/**
 * Types of columns: identifiers sort by their bytes in both databases, numbers have 64 bits. JSON is TEXT in both,
 * decoded by schemas.
 */
export const columnTypes = (sql: SqlClient.SqlClient) => {
  const types = sql.onDialectOrElse({
    sqlite: () => ({ id: "TEXT", big: "INTEGER" }),
    orElse: () => ({ id: 'TEXT COLLATE "C"', big: "BIGINT" })
  })
  return { id: sql.literal(types.id), big: sql.literal(types.big) }
}

const readNow = readRows(Schema.Struct({ now: IntColumn }))

/** What the clock of the database says, in milliseconds since the epoch: the same for all replicas. */
export const databaseMillis = (sql: SqlClient.SqlClient): Effect.Effect<number, SqlError.SqlError> =>
  sql.onDialectOrElse({
    // The database is in this process.
    sqlite: () => Clock.currentTimeMillis,
    orElse: () =>
      Effect.flatMap(
        readNow(sql`SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now`),
        ([row]) =>
          row === undefined ? Effect.die(new Error("the database tells no time")) : Effect.succeed(row.now)
      )
  })

/** Numbers that no other program uses for an advisory lock in the same database. */
export const advisoryLocks = {
  /** Of the transaction that changes the schema. */
  migrations: 6_787_463_523,
  /** Of the session that does the background duties. */
  leadership: 6_787_463_524,
  /** Shared by every service; exclusive for a copy. */
  service: 6_787_463_525,
  /** Of the transaction that writes. */
  writing: 6_787_463_526
} as const

/** Waits until nobody else changes the schema; held until the transaction ends. */
export const lockMigrations = (sql: SqlClient.SqlClient): Effect.Effect<void, SqlError.SqlError> =>
  sql.onDialectOrElse({
    sqlite: () => Effect.void,
    orElse: () => Effect.asVoid(sql`SELECT pg_advisory_xact_lock(${advisoryLocks.migrations})`)
  })

/** The BEGIN of a transaction that sees the database as it is at one moment, and changes nothing; undefined: the usual. */
export const snapshotOf = (sql: SqlClient.SqlClient): string | undefined =>
  sql.onDialectOrElse({
    sqlite: () => undefined,
    orElse: () => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
  })

/** A row with `found`: 1 if there is such a table, else 0. */
export const tableExists = (sql: SqlClient.SqlClient, name: string) =>
  sql.onDialectOrElse({
    sqlite: () => sql`SELECT COUNT(*) AS found FROM sqlite_master WHERE type = 'table' AND name = ${name}`,
    // to_regclass() may answer from a cache that does not know yet what others have committed.
    orElse: () =>
      sql`SELECT COUNT(*) AS found FROM pg_class
          WHERE relname = ${name} AND relnamespace = current_schema()::regnamespace`
  })

/** The channel on which every commit with journal entries is told. */
export const JOURNAL_CHANNEL = "muster_journal"

/**
 * A mutation has hidden the failure of one of its statements. SQLite forgives that; PostgreSQL takes no further
 * statement until the mutation's savepoint is taken back.
 */
export const leaveFailedMutation = (
  sql: SqlClient.SqlClient,
  error: SqlError.SqlError
): Effect.Effect<void, SqlError.SqlError> =>
  // The name that the client gives to the savepoint of a transaction within a transaction.
  isAborted(error) ? Effect.asVoid(sql.unsafe("ROLLBACK TO SAVEPOINT effect_sql_1")) : Effect.void
