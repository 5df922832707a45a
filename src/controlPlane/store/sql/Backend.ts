import { Clock, Context, Effect, Schema } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { IntColumn, readRows } from "./rows.ts"

/** Identifies a transaction whose COMMIT was not answered, to find out later whether it was committed. */
export interface CommitToken {
  readonly transaction: string
  /** The start of the database server. A server that was killed may give the number of a lost transaction again. */
  readonly server_started: string
}

/** `unknown`: a transaction with this number was committed, but it may be another one. */
export type CommitOutcome = "committed" | "lost" | "unknown"

/** The differences between the databases beyond their SQL: availability, and the needs of a commit. */
export class Backend extends Context.Service<
  Backend,
  {
    /** Whether the database is known to be unavailable: statements fail at once. */
    readonly isAway: () => boolean
    readonly away: Effect.Effect<void>
    /** Waits until a failed read that must not be skipped can be repeated; false if it never can. */
    readonly readAgain: Effect.Effect<boolean>
    /** Whether a transaction that was lost for a transient reason can be repeated. */
    readonly retries: boolean
    /** As the first statement, excludes other processes' writes, so that read rows hold until the commit. */
    readonly acquireWriteLock: Effect.Effect<CommitToken | undefined, SqlError.SqlError>
    /** Time after which a transaction takes no further mutation, in milliseconds: others wait for its locks. */
    readonly transactionMillis: number
    /** The end of the statement that moves the journal's counter: it notifies other replicas at the commit. */
    readonly notifyClause: Statement.Fragment | undefined
    /** Waits until a token's transaction has ended, and returns its outcome. */
    outcomeOf(token: CommitToken | undefined): Effect.Effect<CommitOutcome>
  }
>()("muster/store/Backend") {
  /** A database in this process: always available, and a failed COMMIT did not happen. */
  static readonly local = Backend.of({
    isAway: () => false,
    away: Effect.never,
    readAgain: Effect.succeed(false),
    retries: false,
    acquireWriteLock: Effect.succeed(undefined),
    transactionMillis: Number.POSITIVE_INFINITY,
    notifyClause: undefined,
    outcomeOf: () => Effect.succeed("lost")
  })
}

/** In both databases, identifiers sort by their bytes, numbers have 64 bits, and JSON is TEXT. */
export const columnTypes = (sql: SqlClient.SqlClient) => {
  const types = sql.onDialectOrElse({
    sqlite: () => ({ id: "TEXT", big: "INTEGER" }),
    orElse: () => ({ id: 'TEXT COLLATE "C"', big: "BIGINT" })
  })
  return { id: sql.literal(types.id), big: sql.literal(types.big) }
}

const readNow = readRows(Schema.Struct({ now: IntColumn }))

/** Milliseconds since the epoch by the clock of the database: the same for all replicas. */
export const databaseMillis = (sql: SqlClient.SqlClient): Effect.Effect<number, SqlError.SqlError> =>
  sql.onDialectOrElse({
    // The database is in this process.
    sqlite: () => Clock.currentTimeMillis,
    orElse: () =>
      Effect.flatMap(
        readNow(sql`SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now`),
        ([row]) =>
          row === undefined ? Effect.die(new Error("the database returned no time")) : Effect.succeed(row.now)
      )
  })

/** Numbers of advisory locks that no other program uses in the same database. */
export const advisoryLocks = {
  /** Held by the transaction that changes the schema. */
  migrations: 6_787_463_523,
  /** Held by the session of the leader. */
  leadership: 6_787_463_524,
  /** Shared by all services; exclusive for a copy. */
  service: 6_787_463_525,
  /** Held by the transaction that writes. */
  writing: 6_787_463_526
} as const

/** Waits until no other process changes the schema; held until the transaction ends. */
export const lockMigrations = (sql: SqlClient.SqlClient): Effect.Effect<void, SqlError.SqlError> =>
  sql.onDialectOrElse({
    sqlite: () => Effect.void,
    orElse: () => Effect.asVoid(sql`SELECT pg_advisory_xact_lock(${advisoryLocks.migrations})`)
  })

/** Returns the BEGIN of a read-only transaction with a consistent view, unless the default suffices. */
export const snapshotOf = (sql: SqlClient.SqlClient): string | undefined =>
  sql.onDialectOrElse({
    sqlite: () => undefined,
    orElse: () => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
  })

/** Selects `found`: 1 if there is such a table, else 0. */
export const tableExists = (sql: SqlClient.SqlClient, name: string) =>
  sql.onDialectOrElse({
    sqlite: () => sql`SELECT COUNT(*) AS found FROM sqlite_master WHERE type = 'table' AND name = ${name}`,
    // to_regclass() may return a cached result that lacks recent commits.
    orElse: () =>
      sql`SELECT COUNT(*) AS found FROM pg_class
          WHERE relname = ${name} AND relnamespace = current_schema()::regnamespace`
  })

/** The text of a field of a column with JSON. */
export const jsonText = (sql: SqlClient.SqlClient, column: string, field: string) =>
  sql.onDialectOrElse({
    sqlite: () => sql.literal(`(${column} ->> '${field}')`),
    orElse: () => sql.literal(`(${column}::json ->> '${field}')`)
  })

/** The channel that announces every commit with journal entries. */
export const JOURNAL_CHANNEL = "muster_journal"
