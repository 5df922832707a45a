import { Effect, References, Schema } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { lockMigrations, tableExists } from "../sql/dialect.ts"
import { firstRow } from "../sql/rows.ts"
import { StoreStartError } from "../sql/StoreStartError.ts"
import { initial } from "./0001_initial.ts"
import { nodeKeys } from "./0002_node_keys.ts"
import { removals } from "./0003_removals.ts"
import { moves } from "./0004_moves.ts"
import { tickets } from "./0005_tickets.ts"
import { holdings } from "./0006_holdings.ts"
import { nodePresence } from "./0007_node_presence.ts"
import { nodeUnreachable } from "./0008_node_unreachable.ts"
import { sealedTokens } from "./0009_sealed_tokens.ts"
import { serverLabels } from "./0010_server_labels.ts"
import { ticketStreams } from "./0011_ticket_streams.ts"
import { crashes } from "./0012_crashes.ts"
import { serverRestart } from "./0013_server_restart.ts"
import { serverRedefinition } from "./0014_server_redefinition.ts"
import { rollouts } from "./0015_rollouts.ts"
import { webhooks } from "./0016_webhooks.ts"
import { expiryAnnounced } from "./0017_expiry_announced.ts"
import { keyGrants } from "./0018_key_grants.ts"
import { audit } from "./0019_audit.ts"
import { keyRestrictions } from "./0020_key_restrictions.ts"
import { drainOptions } from "./0021_drain_options.ts"
import { serverTrace } from "./0022_server_trace.ts"
import { serverNames } from "./0023_server_names.ts"
import { definitions } from "./0024_definitions.ts"
import { serverRun } from "./0027_server_run.ts"
import { serverProblem } from "./0028_server_problem.ts"
import { deletedServers } from "./0030_deleted_servers.ts"
import { auditBytes } from "./0032_audit_bytes.ts"
import { exactAccess } from "./0033_exact_access.ts"
import { quotas } from "./0034_quotas.ts"
import { rolloutOrigin } from "./0035_rollout_origin.ts"

/** The table of applied migrations. */
export const MIGRATIONS_TABLE = "muster_migrations"
const table = MIGRATIONS_TABLE

/** Every migration by number. A released migration never changes. */
export const migrations = {
  "0001_initial": initial,
  "0002_node_keys": nodeKeys,
  "0003_removals": removals,
  "0004_moves": moves,
  "0005_tickets": tickets,
  "0006_holdings": holdings,
  "0007_node_presence": nodePresence,
  "0008_node_unreachable": nodeUnreachable,
  "0009_sealed_tokens": sealedTokens,
  "0010_server_labels": serverLabels,
  "0011_ticket_streams": ticketStreams,
  "0012_crashes": crashes,
  "0013_server_restart": serverRestart,
  "0014_server_redefinition": serverRedefinition,
  "0015_rollouts": rollouts,
  "0016_webhooks": webhooks,
  "0017_expiry_announced": expiryAnnounced,
  "0018_key_grants": keyGrants,
  "0019_audit": audit,
  "0020_key_restrictions": keyRestrictions,
  "0021_drain_options": drainOptions,
  "0022_server_trace": serverTrace,
  "0023_server_names": serverNames,
  "0024_definitions": definitions,
  "0027_server_run": serverRun,
  "0028_server_problem": serverProblem,
  "0030_deleted_servers": deletedServers,
  "0032_audit_bytes": auditBytes,
  "0033_exact_access": exactAccess,
  "0034_quotas": quotas,
  "0035_rollout_origin": rolloutOrigin
}

/** The schema version of this program. */
export const schemaVersion = Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

const readVersion = firstRow(Schema.Struct({ newest: Schema.NullOr(Schema.Int) }))
const readFound = firstRow(Schema.Struct({ found: Schema.Int }))

/** The schema version of the database; 0: none. */
export const currentSchema: Effect.Effect<number, SqlError.SqlError, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient
    const found = yield* readFound(tableExists(sql, table))
    if (found._tag === "None" || found.value.found === 0) return 0
    const version = yield* readVersion(sql`SELECT MAX(migration_id) AS newest FROM ${sql(table)}`)
    return version._tag === "None" ? 0 : (version.value.newest ?? 0)
  }
)

/** Tables of the first migration. */
const OWN_TABLES = ["servers", "nodes", "journal", "counters", "api_keys"]

/** A table that prevents a first schema: another program uses the database. */
export const foreignTable: Effect.Effect<string | undefined, SqlError.SqlError, SqlClient.SqlClient> =
  Effect.gen(function* () {
    if ((yield* currentSchema) > 0) return undefined
    const sql = yield* SqlClient.SqlClient
    for (const name of OWN_TABLES) {
      const found = yield* readFound(tableExists(sql, name))
      if (found._tag === "Some" && found.value.found > 0) return name
    }
    return undefined
  })

const refuseForeign = Effect.flatMap(foreignTable, (name) =>
  name === undefined
    ? Effect.void
    : Effect.fail(
        new StoreStartError({
          reason: "Failed",
          message: `the database has a table "${name}" that is not Muster's: name an empty one`
        })
      )
)

const refuseNewer = Effect.flatMap(currentSchema, (newest) =>
  newest > schemaVersion
    ? Effect.fail(
        new StoreStartError({
          reason: "NewerSchema",
          message: `the database has schema ${newest}, this version knows ${schemaVersion}: run a newer muster`
        })
      )
    : Effect.succeed(newest)
)

/**
 * A second process waits, and then has nothing to do. On SQLite its wait blocks its thread, so the holder of the lock
 * does not yield: both may be in one process.
 */
const underLock = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* lockMigrations(sql)
  yield* refuseNewer
  yield* refuseForeign
  yield* Migrator.make({})({ loader: Migrator.fromRecord(migrations), table })
}).pipe(
  (self) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(self)),
  Effect.provideService(References.PreventSchedulerYield, true)
)

/**
 * Brings the schema up to date in one transaction: afterwards it is {@link schemaVersion}, or nothing has changed.
 *
 * @error StoreStartError `NewerSchema`: a newer version of the program has written the database
 */
export const migrate: Effect.Effect<void, StoreStartError, SqlClient.SqlClient> = Effect.gen(function* () {
  if ((yield* refuseNewer) < schemaVersion) yield* underLock
}).pipe(
  Effect.catchTags({
    SqlError: (cause: SqlError.SqlError) => Effect.fail(migrationFailed(cause)),
    MigrationError: (cause: Migrator.MigrationError) => Effect.fail(migrationFailed(cause))
  })
)

/** The statement that failed says more than that one of the migrations did. */
const messageOf = (cause: SqlError.SqlError | Migrator.MigrationError): string =>
  !SqlError.isSqlError(cause) && cause.cause instanceof Error
    ? `${cause.message}: ${cause.cause.message}`
    : cause.message

const migrationFailed = (cause: SqlError.SqlError | Migrator.MigrationError) =>
  SqlError.isSqlError(cause) && cause.reason._tag === "LockTimeoutError"
    ? new StoreStartError({
        reason: "Locked",
        message: "the database is locked by another process: end it, or wait until it is done",
        cause
      })
    : new StoreStartError({
        reason: "Failed",
        message: `the schema of the database cannot be brought up to date: ${messageOf(cause)}`,
        cause
      })
