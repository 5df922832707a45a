/** The meaning of PostgreSQL's error codes (Appendix A of its manual). */
import { SqlError } from "effect/sql"
import { describeDatabase, type PostgresUrl } from "../../../shared/config/DatabaseUrl.ts"
import { StoreStartError, sqlState } from "../sql/sqlErrors.ts"

/** Codes, or their first two characters, of failures of the database itself, not of the statement. */
const away: ReadonlyArray<string> = [
  "08", // the connection
  "53", // no memory, disk or connections left
  "57P", // shut down, starting, dropped
  "58", // I/O
  "40003", // whether the statement was carried out is unknown
  "25006", // read-only: no longer the primary
  "25P03" // idle in a transaction for too long
]

export const connectionError = (message: string, operation: string, cause?: unknown) =>
  new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause, message, operation }) })

/** The reasons whose messages name only the statement. */
const explainedReasons = {
  UnknownError: SqlError.UnknownError,
  SqlSyntaxError: SqlError.SqlSyntaxError,
  ConstraintError: SqlError.ConstraintError,
  LockTimeoutError: SqlError.LockTimeoutError,
  DeadlockError: SqlError.DeadlockError,
  StatementTimeoutError: SqlError.StatementTimeoutError,
  AuthenticationError: SqlError.AuthenticationError,
  AuthorizationError: SqlError.AuthorizationError
}
const isExplained = (tag: string): tag is keyof typeof explainedReasons => tag in explainedReasons

/** Returns the error with a message that explains it, and a reason that names the culprit. */
export const explained = (error: SqlError.SqlError): SqlError.SqlError => {
  const { cause, operation = "execute" } = error.reason
  const said = cause instanceof Error && cause.message !== "" ? cause.message : error.message
  const code = sqlState(error)
  if (code === undefined) {
    return error.reason._tag === "ConnectionError" ? connectionError(said, operation, cause) : error
  }
  const message = `${said} (${code})`
  if (away.some((prefix) => code.startsWith(prefix))) return connectionError(message, operation, cause)
  const tag = error.reason._tag
  if (!isExplained(tag)) return error
  return new SqlError.SqlError({ reason: new explainedReasons[tag]({ cause, message, operation }) })
}

/** A refused or silent server serves no client; a wrong password says nothing about existing connections. */
export const isUnreachable = (error: SqlError.SqlError): boolean => {
  const code = sqlState(error)
  return code === undefined ? error.reason._tag === "ConnectionError" : /^(57P|08|25006)/.test(code)
}

/** Whether the server is starting, or recovering from a crash. */
export const isStarting = (error: SqlError.SqlError): boolean => sqlState(error) === "57P03"

/** Returns the next step by the server's error code; without a code, the server did not answer. */
const hintOf = (code: string | undefined): string => {
  if (code === undefined) return "Check that it runs and that MUSTER_DATABASE_URL names it"
  if (code.startsWith("28")) return "Check the user and the password of MUSTER_DATABASE_URL"
  if (code === "3D000") return "Create the database, or name another in MUSTER_DATABASE_URL"
  if (code === "53300") return "Raise its max_connections, or lower MUSTER_DATABASE_POOL"
  return "Check MUSTER_DATABASE_URL"
}

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
