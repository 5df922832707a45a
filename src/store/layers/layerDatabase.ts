import { Effect, Layer } from "effect"
import type { PostgresOptions } from "../postgres/PostgresClient.ts"
import type { DatabaseUrl } from "../sql/DatabaseUrl.ts"
import type { StoreStartError } from "../sql/StoreStartError.ts"
import { layerSqlite } from "./layerSqlite.ts"
import type { StoreOptions } from "./layerStore.ts"

/** Everything that a store provides, whatever its database. */
export type StoreServices = Layer.Success<ReturnType<typeof layerSqlite>>

/** The store in the database that a URL names. */
export const layerDatabase = (
  url: DatabaseUrl,
  options: StoreOptions & Omit<PostgresOptions, "url"> = {}
): Layer.Layer<StoreServices, StoreStartError> =>
  url._tag === "Sqlite"
    ? layerSqlite({ ...options, filename: url.filename })
    : Layer.unwrap(
        // Loaded where it is used only: it takes its time and memory.
        Effect.map(
          Effect.promise(() => import("./layerPostgres.ts")),
          ({ layerPostgres }) => layerPostgres({ ...options, url })
        )
      )
