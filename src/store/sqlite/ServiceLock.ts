import { Effect, Layer, type Scope } from "effect"
import { StoreStartError } from "../StoreStartError.ts"
import { openDatabase } from "./database.ts"

/** The lock file of a database, beside it: `muster.lock` for `muster.db`. */
export const lockFileOf = (database: string): string => `${database.replace(/\.db$/, "")}.lock`

/** Takes the lock until the scope closes. */
export const takeServiceLock = (filename: string): Effect.Effect<void, StoreStartError, Scope.Scope> =>
  openDatabase({
    filename,
    busyTimeoutMillis: 0,
    setup: "PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE"
  }).pipe(
    Effect.asVoid,
    Effect.mapError((error) =>
      error.reason === "Locked"
        ? new StoreStartError({
            reason: "InUse",
            message: `another muster service runs on the same data (${filename} is locked): stop it, or use another data folder`,
            cause: error.cause
          })
        : error
    )
  )

/**
 * Held by the one service that may run on a data folder: an exclusive SQLite transaction on a file of its own, so
 * that the operating system releases it however the process ends. Commands that only open the store do not take it.
 */
export const ServiceLock = {
  /**
   * @param options.filename path of the lock file, e.g. `<data>/muster.lock`; made when missing, never removed
   * @error StoreStartError `InUse`: another service holds it
   */
  layer: (options: { readonly filename: string }): Layer.Layer<never, StoreStartError> =>
    Layer.effectDiscard(takeServiceLock(options.filename))
}
