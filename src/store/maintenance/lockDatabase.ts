import { Effect, type Scope } from "effect"
import { type DatabaseUrl, describeDatabase, type PostgresUrl } from "../sql/DatabaseUrl.ts"
import { StoreStartError } from "../sql/StoreStartError.ts"
import { lockFileOf, takeServiceLock } from "../sqlite/ServiceLock.ts"

const inUse = (url: DatabaseUrl, cause?: unknown) =>
  new StoreStartError({
    reason: "InUse",
    message: `a muster service runs on ${describeDatabase(url)}: stop it first`,
    cause
  })

const lockPostgres = Effect.fnUntraced(function* (url: PostgresUrl) {
  const { tryServiceLock } = yield* Effect.promise(() => import("../postgres/tryServiceLock.ts"))
  if (!(yield* tryServiceLock(url))) return yield* inUse(url)
})

/**
 * Keeps services off the database until the scope closes.
 *
 * @error StoreStartError `InUse`: a service runs on it
 */
export const lockDatabase = (url: DatabaseUrl): Effect.Effect<void, StoreStartError, Scope.Scope> =>
  url._tag === "Postgres"
    ? lockPostgres(url)
    : takeServiceLock(lockFileOf(url.filename), url.filename).pipe(
        Effect.mapError((error) => (error.reason === "InUse" ? inUse(url, error) : error))
      )
