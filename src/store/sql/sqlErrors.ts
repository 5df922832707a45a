import { Cause, Effect, Predicate } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseFull, Unavailable } from "../../domain/errors.ts"

export const isSqlError = SqlError.isSqlError

/** The first {@link SqlError} of a cause, whether it is an error or a defect. */
export const sqlErrorIn = (cause: Cause.Cause<unknown>): SqlError.SqlError | undefined =>
  cause.reasons
    .map((reason) =>
      Cause.isFailReason(reason) ? reason.error : Cause.isDieReason(reason) ? reason.defect : undefined
    )
    .find(isSqlError)

/**
 * Whether the database itself is the trouble (gone, locked, full, not writable), so that the same statement may
 * succeed later. Everything else is a mistake of the statement.
 */
export const isDatabaseAway = (error: SqlError.SqlError): boolean => {
  switch (error.reason._tag) {
    case "ConnectionError":
    case "AuthenticationError":
    case "AuthorizationError":
    case "DeadlockError":
    case "SerializationError":
    case "LockTimeoutError":
    case "StatementTimeoutError":
      return true
    default:
      return false
  }
}

/** Whether a transaction was in another's way: the same again may succeed at once. */
export const isContention = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "DeadlockError" ||
  error.reason._tag === "SerializationError" ||
  error.reason._tag === "LockTimeoutError"

export const isLostConnection = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "ConnectionError" && !isDiskFull(error)

/** Whether a unique or primary key was violated. */
export const isUniqueViolation = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "UniqueViolation"

/** SQLSTATE of an error that the server has answered. */
export const sqlState = (error: SqlError.SqlError): string | undefined => {
  const { cause } = error.reason
  return Predicate.hasProperty(cause, "code") &&
    typeof cause.code === "string" &&
    /^[0-9A-Z]{5}$/.test(cause.code)
    ? cause.code
    : undefined
}

/** Result codes of SQLite: the disk is full, also where the shared memory of the WAL has to grow. */
const SQLITE_FULL = 13
const SQLITE_IOERR_SHMSIZE = 4874

/** Whether the disk of the database is full. */
export const isDiskFull = (error: SqlError.SqlError): boolean => {
  const { cause } = error.reason
  if (sqlState(error) === "53100") return true
  return (
    Predicate.hasProperty(cause, "errcode") &&
    (cause.errcode === SQLITE_FULL || cause.errcode === SQLITE_IOERR_SHMSIZE)
  )
}

/** A statement came after one that failed, in a transaction that was not taken back to before it. */
export const isAborted = (error: SqlError.SqlError): boolean => sqlState(error) === "25P02"

/** Operation of the errors of statements that were not tried: the log has said why the database is away. */
export const NOT_TRIED = "not tried"

/** Takes {@link SqlError} out of the type: `Unavailable` when the database is away, else a defect. */
export const absorbSqlErrors = <A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  Effect.catch(self, (error): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
    // In the other branch of a guard TypeScript does not narrow a type parameter.
    if (!SqlError.isSqlError(error)) return Effect.fail(error as Exclude<E, SqlError.SqlError>)
    if (!isDatabaseAway(error)) return Effect.die(error)
    return Effect.andThen(
      error.reason.operation === NOT_TRIED
        ? Effect.void
        : Effect.logError(`the database cannot be reached: ${error.message}`),
      Effect.fail(isDiskFull(error) ? DatabaseFull.of() : Unavailable.store())
    )
  })
