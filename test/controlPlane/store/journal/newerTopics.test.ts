import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { SqlClient } from "effect/sql"
import type { JournalEntry } from "../../../../src/contract/domain/Journal.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { append, databases, freshStore } from "../support/database.ts"

/** A commit of a newer version: a row, and the counter increased. */
const newer = (topic: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql.withTransaction(
      Effect.andThen(
        sql`UPDATE counters SET value = value + 1 WHERE name = 'journal'`,
        sql`INSERT INTO journal (cursor, at, topic, server_id, blueprint_id, payload)
            SELECT value, 0, ${topic}, 's1', 'survival', '{"new":1}' FROM counters WHERE name = 'journal'`
      )
    )
  )

describe.each(databases)("design: rolling restart to a newer version (%s)", (kind) => {
  it.live("internal changes with an unknown topic are skipped, and their cursors count", () =>
    Effect.gen(function* () {
      const journal = yield* Journal
      const store = yield* Store
      const seen: Array<JournalEntry> = []
      yield* journal.follow("publish", (entries) => Effect.sync(() => seen.push(...entries)))
      yield* store.write(append("one"))
      yield* newer("server:repainted")
      yield* store.write(append("two"))
      const kept = yield* Stream.runCollect(journal.after(0))
      for (const entries of [seen, kept]) {
        assert.deepStrictEqual(
          entries.map(({ change, cursor }) => [cursor, change.topic]),
          [
            [1, "status"],
            [2, "unknown:change"],
            [3, "status"]
          ]
        )
      }
    }).pipe(Effect.scoped, Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})
