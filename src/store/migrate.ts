import { Effect } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { initial } from "./migrations/0001_initial.ts"
import { nodeKeys } from "./migrations/0002_node_keys.ts"
import { removals } from "./migrations/0003_removals.ts"
import { StoreStartError } from "./StoreStartError.ts"

const table = "muster_migrations"

/** Every migration, by number: what has been released never changes. */
const migrations = {
  "0001_initial": initial,
  "0002_node_keys": nodeKeys,
  "0003_removals": removals
}

/** Number of the schema that this version writes. */
export const schemaVersion = Object.keys(migrations).length

/** Any number that no other program uses for an advisory lock in the same database. */
const ADVISORY_LOCK = 6_787_463_523

/**
 * Brings the schema up to date in one transaction: afterwards it is {@link schemaVersion}, or nothing has changed.
 *
 * @error StoreStartError `NewerSchema`: a newer version of the program has written the database
 */
export const migrate: Effect.Effect<void, StoreStartError, SqlClient.SqlClient> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql.onDialectOrElse({
    pg: () => Effect.asVoid(sql`SELECT pg_advisory_xact_lock(${ADVISORY_LOCK})`),
    orElse: () => Effect.void
  })
  yield* Migrator.make({})({ loader: Migrator.fromRecord(migrations), table })
  const rows = yield* sql<{ readonly newest: number }>`SELECT MAX(migration_id) AS newest FROM ${sql(table)}`
  const newest = rows[0]?.newest ?? 0
  if (newest > schemaVersion) {
    return yield* new StoreStartError({
      reason: "NewerSchema",
      message: `the database has schema ${newest}, this version knows ${schemaVersion}: run a newer muster`
    })
  }
}).pipe(
  (self) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(self)),
  Effect.catchTags({
    SqlError: (cause: SqlError.SqlError) => Effect.fail(migrationFailed(cause)),
    MigrationError: (cause: Migrator.MigrationError) => Effect.fail(migrationFailed(cause))
  })
)

const migrationFailed = (cause: SqlError.SqlError | Migrator.MigrationError) =>
  SqlError.isSqlError(cause) && cause.reason._tag === "LockTimeoutError"
    ? new StoreStartError({
        reason: "Locked",
        message: "the database is locked by another process: end it, or wait until it is done",
        cause
      })
    : new StoreStartError({
        reason: "Failed",
        message: `the schema of the database cannot be brought up to date: ${cause.message}`,
        cause
      })
