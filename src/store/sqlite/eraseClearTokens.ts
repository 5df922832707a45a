import { Effect, Predicate } from "effect"
import { SqlClient } from "effect/sql"
import { CLEAR_TOKENS } from "../migrations/0009_sealed_tokens.ts"
import { StoreStartError } from "../sql/StoreStartError.ts"
import { type Database, openDatabase } from "./database.ts"

/** The wait for another process that writes, in ms: it blocks the thread. */
const BUSY_TIMEOUT_MILLIS = 5000

/** Rewrites the file without its free space, and empties the log with the old pages. */
const rewrite = (database: Database): boolean => {
  database.exec("VACUUM")
  const [row] = database.all({
    sql: "PRAGMA wal_checkpoint(TRUNCATE)",
    params: [],
    rows: "objects",
    bigints: false,
    prepare: "once"
  })
  if (!Predicate.hasProperty(row, "busy") || row.busy !== 0) return false
  database.exec(`UPDATE counters SET value = 0 WHERE name = '${CLEAR_TOKENS}'`)
  return true
}

/**
 * Erases tokens in clear text from the free space of a file of an earlier version. Runs once per file; after a failure,
 * the next start tries again: those tokens have expired.
 */
export const eraseClearTokens = (filename: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const due = yield* sql`SELECT value FROM counters WHERE name = ${CLEAR_TOKENS} AND value = 1`
    if (due.length === 0) return
    const done = yield* Effect.scoped(
      Effect.flatMap(
        openDatabase({ filename, busyTimeoutMillis: BUSY_TIMEOUT_MILLIS, setup: "" }),
        (database) =>
          Effect.try({
            try: () => rewrite(database),
            catch: (cause) =>
              new StoreStartError({
                reason: "Failed",
                message: cause instanceof Error ? cause.message : String(cause)
              })
          })
      )
    )
    if (!done) yield* new StoreStartError({ reason: "Locked", message: "another process reads the database" })
  }).pipe(
    Effect.catch((error) =>
      Effect.logWarning(
        `expired tokens of nodes are still in free space of ${filename}; the next start removes them: ${error.message}`
      )
    )
  )
