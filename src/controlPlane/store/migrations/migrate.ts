import { Effect, Option, References, Schema } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { lockMigrations, tableExists } from "../sql/Backend.ts"
import { readRows } from "../sql/rows.ts"
import { StoreStartError } from "../sql/sqlErrors.ts"
import { schema } from "./0001_schema.ts"

export const MIGRATIONS_TABLE = "muster_migrations"

type Migrations = Readonly<Record<string, Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>>>

const schemaName = "schema"

/** Every migration by number. A released migration never changes. */
export const migrations: Migrations = { [`0001_${schemaName}`]: schema }

const numberOf = (name: string): number => Number.parseInt(name, 10)
const versionOf = (all: Migrations): number => Math.max(...Object.keys(all).map(numberOf))

export const schemaVersion = versionOf(migrations)

const readApplied = readRows(Schema.Struct({ id: Schema.Int, name: Schema.String }))
const readFound = readRows(Schema.Struct({ found: Schema.Int }))

const isThere = (sql: SqlClient.SqlClient, name: string) =>
  Effect.map(readFound(tableExists(sql, name)), ([row]) => row !== undefined && row.found > 0)

const applied = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  if (!(yield* isThere(sql, MIGRATIONS_TABLE))) return []
  return yield* readApplied(
    sql`SELECT migration_id AS id, name FROM ${sql(MIGRATIONS_TABLE)} ORDER BY migration_id`
  )
})

/** The schema version of the database; 0 if there is no schema. */
export const currentSchema = Effect.map(applied, (all) => all.at(-1)?.id ?? 0)

const OWN_TABLES = ["servers", "nodes", "journal", "counters", "api_keys"]

const refused = (reason: StoreStartError["reason"], message: string) =>
  Option.some(StoreStartError.of(reason, message))

/** Returns why this program cannot use a database with some applied migrations, if so. */
const refusalOf = Effect.fnUntraced(function* (found: Effect.Success<typeof applied>) {
  const newest = found.at(-1)?.id ?? 0
  if (found.some(({ id, name }) => id === 1 && name !== schemaName)) {
    return refused(
      "Unsupported",
      "the database is of a version before 0.2.0, which no later version reads: name a new database or data folder"
    )
  }
  if (newest > schemaVersion) {
    return refused(
      "NewerSchema",
      `the database has schema ${newest}, this version knows ${schemaVersion}: run a newer muster`
    )
  }
  if (newest > 0) return Option.none()
  const sql = yield* SqlClient.SqlClient
  for (const name of OWN_TABLES) {
    if (!(yield* isThere(sql, name))) continue
    return refused(
      "Unsupported",
      `the database has a table "${name}" that is not Muster's: name an empty one`
    )
  }
  return Option.none()
})

/** Returns why this program cannot use the database, if so. */
export const refusal = Effect.flatMap(applied, refusalOf)

const checkRefusal = Effect.flatMap(refusal, Option.match({ onNone: () => Effect.void, onSome: Effect.fail }))

/** Applies all missing migrations in one transaction. */
export const migrateTo = (all: Migrations): Effect.Effect<void, StoreStartError, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    // A refusal counts under the lock only: another process may create the tables between two of its reads.
    const found = yield* applied
    if (Option.isNone(yield* refusalOf(found)) && (found.at(-1)?.id ?? 0) >= versionOf(all)) return
    const sql = yield* SqlClient.SqlClient
    const loader = Migrator.fromRecord(all)
    yield* lockMigrations(sql).pipe(
      Effect.andThen(checkRefusal),
      Effect.andThen(Migrator.make({})({ loader, table: MIGRATIONS_TABLE })),
      sql.withTransaction,
      // On SQLite a second process's wait blocks its thread, so the holder of the lock does not yield: both may
      // be in one process.
      Effect.provideService(References.PreventSchedulerYield, true)
    )
  }).pipe(
    Effect.catchTags({
      SqlError: (cause: SqlError.SqlError) => Effect.fail(migrationFailed(cause)),
      MigrationError: (cause: Migrator.MigrationError) => Effect.fail(migrationFailed(cause))
    })
  )

/**
 * Brings the schema up to {@link schemaVersion}.
 * @error StoreStartError `NewerSchema`: a newer version wrote the database; `Unsupported`: one before 0.2.0, or
 * another program
 */
export const migrate = migrateTo(migrations)

/** The statement that failed says more than that one of the migrations did. */
const messageOf = (cause: SqlError.SqlError | Migrator.MigrationError): string =>
  !SqlError.isSqlError(cause) && cause.cause instanceof Error
    ? `${cause.message}: ${cause.cause.message}`
    : cause.message

const migrationFailed = (cause: SqlError.SqlError | Migrator.MigrationError) =>
  SqlError.isSqlError(cause) && cause.reason._tag === "LockTimeoutError"
    ? StoreStartError.of(
        "Locked",
        "the database is locked by another process: end it, or wait until it is done",
        cause
      )
    : StoreStartError.of(
        "Failed",
        `the schema of the database cannot be brought up to date: ${messageOf(cause)}`,
        cause
      )
