/** The keys in the database of the settings. */
import { Effect, Layer } from "effect"
import { CommandLogging } from "../../app/logging.ts"
import type { CommandStore, CommandStoreOrNew } from "../../app/storage.ts"
import { ServiceConfig } from "../../config/service.ts"
import { ApiKeys } from "../../keys/ApiKeys.ts"

/** The keys, over a database that may have to exist. */
export const keysOver = (store: typeof CommandStore | typeof CommandStoreOrNew) =>
  Layer.unwrap(
    Effect.map(ServiceConfig.load, (settings) => ApiKeys.layer().pipe(Layer.provideMerge(store(settings))))
  ).pipe(Layer.provideMerge(CommandLogging))
