/** Reads the database of a service from outside. */

import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { NodeId } from "../../src/contract/domain/Id.ts"
import { isPublic, type JournalEntry } from "../../src/contract/domain/Journal.ts"
import { makeTokenSeal } from "../../src/controlPlane/nodes/nodeWrites.ts"
import { journalTable } from "../../src/controlPlane/store/journal/journalTable.ts"
import { clientOf } from "../../src/controlPlane/store/layers/layerDatabase.ts"
import { ServerRepo } from "../../src/controlPlane/store/repos/ServerRepo.ts"
import { databaseUrl } from "../controlPlane/store/support/database.ts"
import { eventually } from "./eventually.ts"
import { databaseUrlOf } from "./testDatabase.ts"

interface HeldPort {
  readonly node_id: string
  readonly address: string
  readonly port: number
  readonly server_id: string
}

const databaseOf = (dataDir: string) =>
  Layer.unwrap(
    Effect.map(databaseUrlOf(dataDir), (url) =>
      clientOf(
        url === undefined ? { _tag: "Sqlite", filename: join(dataDir, "muster.db") } : databaseUrl(url)
      )
    )
  )

/** Reads records, held ports and the whole journal. */
export const readDatabase = (dataDir: string) => Effect.provide(everything, databaseOf(dataDir))

/** Reads the same from a database URL. */
export const readDatabaseAt = (url: string) => Effect.provide(everything, clientOf(databaseUrl(url)))

/** Reads all at one point of the journal; repeats if an entry was appended meanwhile. */
const everything = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const servers = yield* ServerRepo
  const table = journalTable(sql)
  const { newest, oldest } = yield* table.bounds
  const journal: Array<JournalEntry> = []
  for (let after = oldest - 1; after < newest; after = journal.at(-1)?.cursor ?? newest) {
    journal.push(...(yield* table.page(after, newest, 1000)))
  }
  const read = {
    records: yield* servers.all,
    ports: yield* sql<HeldPort>`SELECT node_id, address, port, server_id FROM ports`,
    integrity: yield* integrity(sql),
    journal,
    newest,
    /** Of the changes that subscribers receive; 0: none. */
    newestEvent: journal.findLast(({ change }) => isPublic(change))?.cursor ?? 0
  }
  return (yield* table.bounds).newest === newest ? read : undefined
}).pipe(
  (once) => eventually(once, (read) => read !== undefined),
  Effect.flatMap(Effect.fromNullishOr),
  Effect.provide(ServerRepo.layer)
)

/** The seal of a service whose secret is in its data folder. */
const sealOf = (dataDir: string) =>
  makeTokenSeal(Buffer.from(readFileSync(join(dataDir, "secret.key"), "utf8").trim()))

/** The token for calls to each node, by node id. */
export const nodeTokens = (dataDir: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly id: NodeId; readonly token: string }>`SELECT id, token FROM nodes`
    const seal = sealOf(dataDir)
    return new Map<string, string>(rows.map(({ id, token }) => [id, seal.open(id, token) ?? ""]))
  }).pipe(Effect.provide(databaseOf(dataDir)))

let stored = 0

/**
 * Stores a queued operation of a server, which the service does not begin: its journal does not have it, before its next start. Returns the id.
 */
export const storeOperation = (
  { dataDir }: { readonly dataDir: string },
  server_id: string,
  change: {
    readonly kind?: string
    readonly state?: string
    readonly created_by?: string
    readonly request?: string
  } = {}
) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    stored += 1
    const row = {
      id: `stored${stored}`,
      kind: "files.change",
      server_id,
      state: "queued",
      request: "{}",
      created_by: "someone",
      created_at: new Date(Date.UTC(2026, 0, 1) + stored * 1000).toISOString(),
      ...change
    }
    yield* sql.withTransaction(sql`INSERT INTO operations ${sql.insert(row)}`)
    return row.id
  }).pipe(Effect.provide(databaseOf(dataDir)))

/** The integrity check of SQLite; PostgreSQL has none. */
const integrity = (sql: SqlClient.SqlClient) =>
  sql.onDialectOrElse({
    sqlite: () => sql<{ readonly integrity_check: string }>`PRAGMA integrity_check`,
    orElse: () => Effect.succeed([{ integrity_check: "ok" }])
  })
