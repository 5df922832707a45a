import { Effect, Layer } from "effect"
import { DatabaseDisk } from "../disk/DatabaseDisk.ts"
import { migrate } from "../migrations/migrate.ts"
import { JournalTail } from "../postgres/JournalTail.ts"
import { PostgresClient, type PostgresOptions } from "../postgres/PostgresClient.ts"
import { warnOfLaxCommits } from "../postgres/warnOfLaxCommits.ts"
import { probeFullDisk } from "../probeFullDisk.ts"
import { Retention } from "../Retention.ts"
import { expiryClock, layerRepositories, type StoreOptions } from "./layerStore.ts"

/**
 * The store in a PostgreSQL database that replicas share. The first replica brings the schema up to date. While the
 * database is unavailable, writes and reads fail at once; they work again without a restart when it is back.
 *
 * @error StoreStartError the database cannot be reached, refuses, is being copied, or has a newer schema
 */
export const layerPostgres = (options: StoreOptions & PostgresOptions) =>
  Layer.merge(Retention.layer(options.retention), probeFullDisk).pipe(
    Layer.provideMerge(Layer.fresh(JournalTail.layer)),
    Layer.provideMerge(Layer.fresh(layerRepositories)),
    Layer.provideMerge(expiryClock(options)),
    Layer.provide(Layer.effectDiscard(warnOfLaxCommits)),
    Layer.provideMerge(Layer.fresh(DatabaseDisk.layerRemote)),
    Layer.provideMerge(PostgresClient.layer(options)),
    Layer.provide(
      Layer.effectDiscard(
        // A migration has no deadline, and a second replica waits for it.
        Effect.provide(migrate, PostgresClient.layerPatient(options.url))
      )
    )
  )
