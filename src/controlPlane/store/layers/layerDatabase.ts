import { existsSync } from "node:fs"
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { type DatabaseUrl, describeDatabase } from "../../../shared/config/DatabaseUrl.ts"
import { DatabaseDisk } from "../disk/DatabaseDisk.ts"
import { Leadership } from "../Leadership.ts"
import { migrate } from "../migrations/migrate.ts"
import type { PostgresOptions } from "../postgres/PostgresClient.ts"
import { Retention } from "../Retention.ts"
import { Backend } from "../sql/Backend.ts"
import { StoreStartError } from "../sql/sqlErrors.ts"
import { SqliteClient } from "../sqlite/SqliteClient.ts"
import { layerRepositories, type StoreOptions } from "./layerStore.ts"

export type { StoreOptions } from "./layerStore.ts"

/** A command beside the service tries each write. */
const diskOf = (options: StoreOptions & { readonly filename: string }) =>
  options.isService === true ? DatabaseDisk.layerWatched(options.filename) : DatabaseDisk.layerRemote

/**
 * The store in one SQLite file, made with mode 0600. Commands may open it beside a service; each service takes
 * `ServiceLock` first.
 * @error StoreStartError the file cannot be opened, is not a database, is locked, or has a newer schema
 */
export const layerSqlite = (options: StoreOptions & { readonly filename: string }) =>
  Retention.layer(options.retention).pipe(
    Layer.provideMerge(Layer.fresh(layerRepositories)),
    Layer.provideMerge(
      Layer.mergeAll(Leadership.layerSingle, Layer.succeed(Backend, Backend.local), diskOf(options))
    ),
    Layer.provide(Layer.effectDiscard(migrate)),
    Layer.provideMerge(SqliteClient.layer(options))
  )

export type StoreServices = Layer.Success<ReturnType<typeof layerSqlite>>

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

/** A client for work on a whole database: no deadlines, no migration. */
export const clientOf = (url: DatabaseUrl): Layer.Layer<SqlClient.SqlClient, StoreStartError> =>
  Layer.fresh(
    url._tag === "Sqlite"
      ? SqliteClient.layer({ filename: url.filename })
      : Layer.unwrap(
          Effect.map(
            Effect.promise(() => import("../postgres/PostgresClient.ts")),
            ({ PostgresClient }) => PostgresClient.layerPatient(url)
          )
        )
  )

/** Fails if a SQLite file is missing: opening would make one. */
export const mustExist = (url: DatabaseUrl, hint = ""): Effect.Effect<void, StoreStartError> =>
  Effect.suspend(() =>
    url._tag === "Postgres" || existsSync(url.filename)
      ? Effect.void
      : Effect.fail(
          StoreStartError.of("CannotOpen", `there is no database yet: ${describeDatabase(url)}${hint}`)
        )
  )
