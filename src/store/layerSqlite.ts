import { Layer } from "effect"
import { IdempotencyRepo } from "./IdempotencyRepo.ts"
import { Journal } from "./Journal.ts"
import { JournalFollowers } from "./JournalFollowers.ts"
import { KeyRepo } from "./KeyRepo.ts"
import { migrate } from "./migrate.ts"
import { NodeKeyRepo } from "./NodeKeyRepo.ts"
import { NodeRepo } from "./NodeRepo.ts"
import { Retention, type RetentionOptions } from "./Retention.ts"
import { ServerRepo } from "./ServerRepo.ts"
import { Store } from "./Store.ts"
import { SqliteClient } from "./sqlite/SqliteClient.ts"

export interface StoreOptions {
  readonly retention?: RetentionOptions
}

/** The store over any `SqlClient`: brings the schema up to date, then everything that reads and writes. */
export const layerStore = (options: StoreOptions = {}) =>
  Retention.layer(options.retention).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        Store.layer,
        Journal.layer,
        ServerRepo.layer,
        NodeRepo.layer,
        KeyRepo.layer,
        NodeKeyRepo.layer,
        IdempotencyRepo.layer
      )
    ),
    Layer.provideMerge(JournalFollowers.layer),
    Layer.provide(Layer.effectDiscard(migrate))
  )

/**
 * The store in one SQLite file. A second process (`muster keys`) may open it beside the service; two services may
 * not: they take `ServiceLock` first.
 *
 * @param options.filename path of the database, made with mode 0600 when missing
 * @error StoreStartError the file cannot be opened, is not a database, is locked, or has a newer schema
 */
export const layerSqlite = (options: StoreOptions & { readonly filename: string }) =>
  layerStore(options).pipe(Layer.provideMerge(SqliteClient.layer(options)))
