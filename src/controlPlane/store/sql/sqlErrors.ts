import { Cause, Data, Effect, Predicate } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseFull, Unavailable } from "../../../contract/domain/errors.ts"
import { backoff } from "../../../shared/work/backoff.ts"

export const isSqlError = SqlError.isSqlError

/** Returns the first {@link SqlError} of a cause, error or defect; consequences of another one last. */
export const sqlErrorIn = (cause: Cause.Cause<unknown>): SqlError.SqlError | undefined => {
  const errors = cause.reasons
    .map((reason) =>
      Cause.isFailReason(reason) ? reason.error : Cause.isDieReason(reason) ? reason.defect : undefined
    )
    .filter(isSqlError)
  return errors.find((error) => !isAborted(error)) ?? errors[0]
}

/** Whether the database is the cause, so the statement may succeed later; else the statement is wrong. */
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

/** Whether the database has refused a statement, so that the same transaction would fail again. */
export const isRefused = (cause: Cause.Cause<unknown>): boolean => {
  const error = sqlErrorIn(cause)
  return error !== undefined && !isDatabaseAway(error)
}

/** Whether two transactions collided: the same transaction may succeed at once. */
export const isContention = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "DeadlockError" ||
  error.reason._tag === "SerializationError" ||
  error.reason._tag === "LockTimeoutError"

export const isLostConnection = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "ConnectionError" && !isDiskFull(error)

export const isUniqueViolation = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "UniqueViolation"

export const sqlState = (error: SqlError.SqlError): string | undefined => {
  const { cause } = error.reason
  return Predicate.hasProperty(cause, "code") &&
    typeof cause.code === "string" &&
    /^[0-9A-Z]{5}$/.test(cause.code)
    ? cause.code
    : undefined
}

/** SQLite's result code of a full disk, also if the shared memory of the WAL cannot grow. */
const SQLITE_FULL = 13
const SQLITE_IOERR_SHMSIZE = 4874

export const isDiskFull = (error: SqlError.SqlError): boolean => {
  const { cause } = error.reason
  if (sqlState(error) === "53100") return true
  return (
    Predicate.hasProperty(cause, "errcode") &&
    (cause.errcode === SQLITE_FULL || cause.errcode === SQLITE_IOERR_SHMSIZE)
  )
}

/** Whether a statement followed a failed one in a transaction that was not rolled back. */
export const isAborted = (error: SqlError.SqlError): boolean => sqlState(error) === "25P02"

/** The operation of errors of statements that were not tried: the log has the reason. */
export const NOT_TRIED = "not tried"

/** Returns the response to a caller whose statement failed because of the database; nothing was changed. */
export const unavailableOf = (error: SqlError.SqlError | undefined): Unavailable => {
  if (error !== undefined && isDiskFull(error)) return DatabaseFull.of()
  return error !== undefined && isContention(error) ? Unavailable.storeLocked() : Unavailable.store()
}

/** Removes {@link SqlError} from the type: `Unavailable` if the database is the cause, else a defect. */
export const absorbSqlErrors = <A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  Effect.catch(self, (error): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
    // TypeScript does not narrow a type parameter in the other branch of a guard.
    if (!SqlError.isSqlError(error)) return Effect.fail(error as Exclude<E, SqlError.SqlError>)
    if (!isDatabaseAway(error)) return Effect.die(error)
    const unavailable = unavailableOf(error)
    return Effect.andThen(
      error.reason.operation === NOT_TRIED
        ? Effect.void
        : Effect.logError(`${unavailable.detail}: ${error.message}`),
      Effect.fail(unavailable)
    )
  })

/**
 * Why the store could not be opened; `message` is for the operator.
 *
 * - `CannotOpen`   the file or its folder is missing, or cannot be read or written
 * - `NotADatabase` the file is something else, or damaged
 * - `Locked`       another process holds the write lock of the database
 * - `InUse`        another `muster serve` runs on the same data
 * - `NewerSchema`  the database was written by a newer version
 * - `Unsupported`  the database was written by a version before 0.2.0, or by another program
 * - `Failed`       any other failure: see `cause`
 */
export class StoreStartError extends Data.TaggedError("StoreStartError")<{
  readonly reason:
    | "CannotOpen"
    | "NotADatabase"
    | "Locked"
    | "InUse"
    | "NewerSchema"
    | "Unsupported"
    | "Failed"
  readonly message: string
  readonly cause?: unknown
}> {
  static of(reason: StoreStartError["reason"], message: string, cause?: unknown) {
    return new StoreStartError(cause === undefined ? { reason, message } : { reason, message, cause })
  }
}

/** The retry schedule of work that must be done once the database is available again. It does not end. */
export const databaseRetrySchedule = backoff({ first: "50 millis", longest: "2 seconds" })
