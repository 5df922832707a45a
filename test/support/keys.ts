/** API keys that tests make beside a service, as `muster keys create` does, without a process of its own. */
import { join } from "node:path"
import { Effect, Layer, Redacted, References } from "effect"
import type { KeyScope } from "../../src/domain/KeyScope.ts"
import { ApiKeys } from "../../src/keys/ApiKeys.ts"
import { storeAt } from "../store/support/database.ts"
import { ServiceFailed } from "./Service.ts"
import { databaseUrlOf } from "./testDatabase.ts"

/** Makes a key in the database that a URL names. */
export const makeKeyAt = (url: string, name: string, scope: KeyScope = "AppAdmin") =>
  Effect.gen(function* () {
    const keys = yield* ApiKeys
    const { key, record } = yield* keys.create({ name, scope })
    return { key: Redacted.value(key), id: record.id }
  }).pipe(
    Effect.provide(Layer.fresh(ApiKeys.layer().pipe(Layer.provide(storeAt(url))))),
    Effect.provideService(References.MinimumLogLevel, "None"),
    Effect.mapError((error) => new ServiceFailed({ message: `no key ${name}: ${error}` }))
  )

/** Makes a key in the database of a data folder. */
export const makeKey = (dataDir: string, name: string, scope: KeyScope = "AppAdmin") =>
  databaseUrlOf(dataDir).pipe(
    Effect.mapError(({ message }) => new ServiceFailed({ message })),
    Effect.flatMap((url) => makeKeyAt(url ?? `sqlite:${join(dataDir, "muster.db")}`, name, scope))
  )
