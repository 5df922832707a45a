/** Creates and revokes API keys in the database, as `muster keys` does, without a process. */
import { join } from "node:path"
import { Effect, Layer, Redacted, References } from "effect"
import type { KeyScope } from "../../src/contract/domain/Key.ts"
import { ApiKeys } from "../../src/controlPlane/keys/ApiKeys.ts"
import { storeAt } from "../controlPlane/store/support/database.ts"
import { ServiceFailed } from "./Service.ts"
import { databaseUrlOf } from "./testDatabase.ts"

const withKeys = <A, E extends { readonly message: string }>(
  url: string,
  use: (keys: ApiKeys["Service"]) => Effect.Effect<A, E>
) =>
  Effect.flatMap(ApiKeys, use).pipe(
    Effect.provide(Layer.fresh(ApiKeys.layer().pipe(Layer.provide(storeAt(url))))),
    Effect.provideService(References.MinimumLogLevel, "None"),
    Effect.mapError(({ message }) => new ServiceFailed({ message }))
  )

/** The URL of the database of a data folder. */
const urlOf = (dataDir: string) =>
  databaseUrlOf(dataDir).pipe(
    Effect.mapError(({ message }) => new ServiceFailed({ message })),
    Effect.map((url) => url ?? `sqlite:${join(dataDir, "muster.db")}`)
  )

/** Creates a key in the database of a URL. */
export const makeKeyAt = (url: string, name: string, scope: KeyScope = "AppAdmin") =>
  Effect.map(
    withKeys(url, (keys) => keys.create({ name, scope })),
    ({ key, record }) => ({ key: Redacted.value(key), id: record.id })
  )

/** Creates a key in the database of a data folder. */
export const makeKey = (dataDir: string, name: string, scope: KeyScope = "AppAdmin") =>
  Effect.flatMap(urlOf(dataDir), (url) => makeKeyAt(url, name, scope))

/** Revokes a key in the database of a data folder. */
export const revokeKey = (dataDir: string, id: string) =>
  Effect.flatMap(urlOf(dataDir), (url) => withKeys(url, (keys) => keys.revoke(id)))
