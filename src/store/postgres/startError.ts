import type { SqlError } from "effect/sql"
import { describeDatabase, type PostgresUrl } from "../sql/DatabaseUrl.ts"
import { StoreStartError } from "../sql/StoreStartError.ts"
import { sqlState } from "../sql/sqlErrors.ts"

/** Returns the next step by the server's error code; without a code, the server did not answer. */
const hintOf = (code: string | undefined): string => {
  if (code === undefined) return "Check that it runs and that MUSTER_DATABASE_URL names it"
  if (code.startsWith("28")) return "Check the user and the password of MUSTER_DATABASE_URL"
  if (code === "3D000") return "Create the database, or name another in MUSTER_DATABASE_URL"
  if (code === "53300") return "Raise its max_connections, or lower MUSTER_DATABASE_POOL"
  return "Check MUSTER_DATABASE_URL"
}

/** Returns why the database could not be opened. */
export const startError = (error: SqlError.SqlError, url: PostgresUrl): StoreStartError => {
  const code = sqlState(error)
  const why = code === undefined ? messageOf(error.reason.cause) || error.message : error.message
  return new StoreStartError({
    reason: "CannotOpen",
    message: `cannot open the database (${describeDatabase(url)}): ${why}. ${hintOf(code)}`,
    cause: error
  })
}

/** An attempt at several addresses fails with several errors and no message of its own. */
const messageOf = (cause: unknown): string => {
  if (cause instanceof AggregateError) return cause.errors.map(messageOf).join(", ")
  return cause instanceof Error ? cause.message : ""
}
