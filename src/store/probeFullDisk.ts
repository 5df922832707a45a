import { Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseDisk } from "./disk/DatabaseDisk.ts"
import { Store } from "./Store.ts"

/** After a write has failed because the disk is full: writes what is there already, until that succeeds. */
export const probeFullDisk = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    const disk = yield* DatabaseDisk
    const probe = store.write(sql`UPDATE counters SET value = value WHERE name = 'journal'`)
    yield* Effect.suspend(() => (disk.isFull() ? Effect.asVoid(probe) : Effect.void)).pipe(
      Effect.catch((error) => Effect.logDebug(`the disk of the database: ${error.detail}`)),
      Effect.repeat(Schedule.spaced("2 seconds")),
      Effect.forkScoped
    )
  })
)
