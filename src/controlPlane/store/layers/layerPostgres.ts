import { Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseDisk } from "../disk/DatabaseDisk.ts"
import { migrate } from "../migrations/migrate.ts"
import { JournalTail } from "../postgres/JournalTail.ts"
import { PostgresClient, type PostgresOptions } from "../postgres/PostgresClient.ts"
import { Retention } from "../Retention.ts"
import { Store } from "../Store.ts"
import { firstRow } from "../sql/rows.ts"
import { layerRepositories, type StoreOptions } from "./layerStore.ts"

/** Repeats a write without effect after one has failed because the disk is full, until it succeeds. */
const probeFullDisk = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    const disk = yield* DatabaseDisk
    const probe = store.write(sql`UPDATE counters SET value = value WHERE name = 'journal'`)
    yield* Effect.suspend(() => (disk.isFull() ? Effect.asVoid(probe) : Effect.void)).pipe(
      Effect.catch((error) => Effect.logDebug(`the disk of the database cannot be read: ${error.detail}`)),
      Effect.repeat(Schedule.spaced("2 seconds")),
      Effect.forkScoped
    )
  })
)

const readCommit = firstRow(Schema.Struct({ commit: Schema.String }))

/** Warns of database settings with which an acknowledged write can be lost in a crash of the database. */
const warnOfLaxCommits = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const found = yield* readCommit(sql`SELECT current_setting('synchronous_commit') AS commit`)
  if (found?.commit !== "off") return
  yield* Effect.logWarning(
    "PostgreSQL runs with synchronous_commit=off: a crash of it may lose what was acknowledged"
  )
}).pipe(Effect.ignore)

/**
 * The store in a PostgreSQL database that replicas share; the first one migrates it. While the database is
 * unavailable, writes and reads fail at once.
 * @error StoreStartError the database cannot be reached, refuses, is being copied, or has a newer schema
 */
export const layerPostgres = (options: StoreOptions & PostgresOptions) =>
  Layer.merge(Retention.layer(options.retention), probeFullDisk).pipe(
    Layer.provideMerge(Layer.fresh(JournalTail.layer)),
    Layer.provideMerge(Layer.fresh(layerRepositories)),
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
