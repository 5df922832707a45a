import { Effect, Layer } from "effect"
import type { DatabaseUrl } from "../../../shared/config/DatabaseUrl.ts"
import type { PostgresOptions } from "../postgres/PostgresClient.ts"
import type { StoreStartError } from "../sql/StoreStartError.ts"
import { layerSqlite } from "./layerSqlite.ts"
import type { StoreOptions } from "./layerStore.ts"

/** The services of a store, whatever its database. */
export type StoreServices = Layer.Success<ReturnType<typeof layerSqlite>>

/** The store in the database of a URL. */
export const layerDatabase = (
  url: DatabaseUrl,
  options: StoreOptions & Omit<PostgresOptions, "url"> = {}
): Layer.Layer<StoreServices, StoreStartError> =>
  url._tag === "Sqlite"
    ? layerSqlite({ ...options, filename: url.filename })
    : Layer.unwrap(
        // Loaded on use only: it costs time and memory.
        Effect.map(
          Effect.promise(() => import("./layerPostgres.ts")),
          ({ layerPostgres }) => layerPostgres({ ...options, url })
        )
      )
