import { Layer } from "effect"
import { DatabaseDisk } from "../disk/DatabaseDisk.ts"
import { Leadership } from "../Leadership.ts"
import { migrate } from "../migrations/migrate.ts"
import { Retention } from "../Retention.ts"
import { Backend } from "../sql/Backend.ts"
import { SqliteClient } from "../sqlite/SqliteClient.ts"
import { layerRepositories, type StoreOptions } from "./layerStore.ts"

export type { StoreOptions } from "./layerStore.ts"

/** A command beside the service tries each write. */
const diskOf = (options: StoreOptions & { readonly filename: string }) =>
  options.isService === true ? DatabaseDisk.layerWatched(options.filename) : DatabaseDisk.layerRemote

/**
 * The store in one SQLite file. A second process (`muster keys`) may open it beside the service. Two services may not:
 * each takes `ServiceLock` first.
 *
 * @param options.filename path of the database, made with mode 0600 if missing
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
