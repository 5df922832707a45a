import { join } from "node:path"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerDatabase } from "../../../../src/controlPlane/store/layers/layerDatabase.ts"
import type { StoreOptions } from "../../../../src/controlPlane/store/layers/layerStore.ts"
import { Store, Transaction } from "../../../../src/controlPlane/store/Store.ts"
import { type DatabaseUrl, parseDatabaseUrl } from "../../../../src/shared/config/DatabaseUrl.ts"
import { newPostgresDatabase } from "../../../support/postgresDatabase.ts"
import { status } from "../../../support/samples.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { testDatabase } from "../../../support/testDatabase.ts"

/** The path of a database that does not exist yet, in a folder that is removed with the scope. */
export const newDatabase = Effect.map(temporaryFolder, (folder) => join(folder, "muster.db"))

export const databaseUrl = (text: string): DatabaseUrl => {
  const url = parseDatabaseUrl(text)
  if (url === undefined) throw new Error(`no database: ${text}`)
  return url
}

/** The store on a database. */
export const storeAt = (url: string, options: StoreOptions & { readonly answerMillis?: number } = {}) =>
  // Few tests are about a slow database.
  layerDatabase(databaseUrl(url), { answerMillis: 30_000, ...options })

/** The kinds of databases of a store. */
export const databases = ["sqlite", "postgres"] as const
export type DatabaseKind = (typeof databases)[number]

/** The URL of a new, empty database of a kind; it is removed with the scope. */
export const newUrl = Effect.fnUntraced(function* (kind: DatabaseKind) {
  return kind === "sqlite" ? `sqlite:${yield* newDatabase}` : yield* newPostgresDatabase()
})

/** The store on a new database, by default of the kind of this test run. */
export const freshStore = (options: StoreOptions = {}, kind: DatabaseKind = testDatabase) =>
  Layer.unwrap(Effect.map(newUrl(kind), (url) => storeAt(url, options)))

/** A mutation that appends one entry for each id. */
export const append = (...ids: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const transaction = yield* Transaction
    for (const id of ids) yield* transaction.append(status(id), { blueprint_id: "survival" })
  })

/** The rows of `statement` as text; for statements that no repository has. */
export const query = (statement: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    return yield* store.read(sql.unsafe<Record<string, unknown>>(statement))
  })
