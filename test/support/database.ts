/** What the database of a service says, read beside it. */
import { join } from "node:path"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { JournalEntry } from "../../src/domain/Journal.ts"
import { journalTable } from "../../src/store/journalTable.ts"
import { ServerRepo } from "../../src/store/ServerRepo.ts"
import { SqliteClient } from "../../src/store/sqlite/SqliteClient.ts"

interface HeldPort {
  readonly node_id: string
  readonly address: string
  readonly port: number
  readonly server_id: string
}

/** Records, held ports and the whole journal. Nothing is written. */
export const readDatabase = (dataDir: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const servers = yield* ServerRepo
    const table = journalTable(sql)
    const { newest, oldest } = yield* table.bounds
    const journal: Array<JournalEntry> = []
    for (let after = oldest - 1; after < newest; after = journal.at(-1)?.cursor ?? newest) {
      journal.push(...(yield* table.page(after, newest, 1000)))
    }
    return {
      records: yield* servers.all,
      ports: yield* sql<HeldPort>`SELECT node_id, address, port, server_id FROM ports`,
      integrity: yield* sql<{ readonly integrity_check: string }>`PRAGMA integrity_check`,
      journal,
      newest
    }
  }).pipe(
    Effect.provide(
      ServerRepo.layer.pipe(Layer.provideMerge(SqliteClient.layer({ filename: join(dataDir, "muster.db") })))
    )
  )
