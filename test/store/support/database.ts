import { Effect, FileSystem, Layer, Path } from "effect"
import { SqlClient } from "effect/sql"
import { layerSqlite, type StoreOptions } from "../../../src/store/layerSqlite.ts"
import { Store, Transaction } from "../../../src/store/Store.ts"
import { status } from "./samples.ts"

/** Path of a database that does not exist yet, in a folder that goes with the scope. */
export const newDatabase = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  return path.join(yield* fs.makeTempDirectoryScoped({ prefix: "muster-store-" }), "muster.db")
})

/** The store on a new SQLite file. */
export const freshStore = (options: StoreOptions = {}) =>
  Layer.unwrap(Effect.map(newDatabase, (filename) => layerSqlite({ ...options, filename })))

/** A mutation that appends one entry for each id. */
export const append = (...ids: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const transaction = yield* Transaction
    for (const id of ids) yield* transaction.append(status(id), "survival")
  })

/** Rows of `statement`, read as text to compare; statements that a repository does not offer. */
export const query = (statement: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    return yield* store.read(sql.unsafe<Record<string, unknown>>(statement))
  })
