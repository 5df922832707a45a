import { Effect } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "../domain/errors.ts"

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

/** Whether a unique or primary key was violated. */
export const isUniqueViolation = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "UniqueViolation"

/** Takes {@link SqlError} out of the type: `Unavailable` when the database is away, else a defect. */
export const absorbSqlErrors = <A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  Effect.catch(self, (error): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
    // In the other branch of a guard TypeScript does not narrow a type parameter.
    if (!SqlError.isSqlError(error)) return Effect.fail(error as Exclude<E, SqlError.SqlError>)
    if (!isDatabaseAway(error)) return Effect.die(error)
    return Effect.andThen(
      Effect.logError(`the database cannot be reached: ${error.message}`),
      Effect.fail(Unavailable.store())
    )
  })
