import { dirname } from "node:path"
import { Effect, Layer, type Scope } from "effect"
import { StoreStartError } from "../sql/sqlErrors.ts"
import { openDatabase } from "./database.ts"

/** The lock file of a database, beside it: `muster.lock` for `muster.db`. */
export const lockFileOf = (database: string): string => `${database.replace(/\.db$/, "")}.lock`

/** Returns the system's reason without the path of the lock file, which the operator did not name. */
const reasonOf = ({ cause, message }: StoreStartError): string =>
  cause instanceof Error ? cause.message.replace(/, \w+ '.*'$/s, "") : message

/** Returns the error in terms of the locked database or folder. */
const concerning = (error: StoreStartError, filename: string, database: string | undefined) => {
  const { cause } = error
  switch (error.reason) {
    case "Locked":
      return new StoreStartError({
        reason: "InUse",
        message: `another muster service runs on the same data (${filename} is locked): stop it, or use another data folder`,
        cause
      })
    case "NotADatabase":
      return new StoreStartError({
        reason: "NotADatabase",
        message: `${filename} is not a lock file of muster: move it away`,
        cause
      })
    default: {
      const what = database === undefined ? `data folder ${dirname(filename)}` : `database ${database}`
      return new StoreStartError({
        reason: error.reason,
        message: `cannot open the ${what}: ${reasonOf(error)}. Check that ${database === undefined ? "it" : "its folder"} exists and can be written`,
        cause
      })
    }
  }
}

/** Takes the lock until the scope closes. Without `database`, the folder of the file is locked. */
export const takeServiceLock = (
  filename: string,
  database?: string
): Effect.Effect<void, StoreStartError, Scope.Scope> =>
  openDatabase({
    filename,
    busyTimeoutMillis: 0,
    setup: "PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE"
  }).pipe(
    Effect.asVoid,
    Effect.mapError((error) => concerning(error, filename, database))
  )

/** An exclusive SQLite transaction, released at every end of the process. Commands do not take it. */
export const ServiceLock = {
  /**
   * The file `filename` is made if missing, never removed; `database` is the locked one, if any.
   * @error StoreStartError `InUse`: another service holds it
   */
  layer: (options: {
    readonly filename: string
    readonly database?: string
  }): Layer.Layer<never, StoreStartError> =>
    Layer.effectDiscard(takeServiceLock(options.filename, options.database))
}
