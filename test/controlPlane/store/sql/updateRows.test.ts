import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { insertRows, type UpdatedRow, updateRows } from "../../../../src/controlPlane/store/sql/rows.ts"
import { databases, freshStore, query } from "../support/database.ts"

describe.each(databases)("updateRows (%s)", (kind) => {
  const scene = Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    yield* store.write(sql`CREATE TABLE pairs (id TEXT PRIMARY KEY, number BIGINT, text TEXT)`)
    const rows = Array.from({ length: 1_200 }, (_, n) => ({ id: `${n}`, number: n, text: "first" }))
    yield* store.write(insertRows(sql, "pairs", rows))
    return (changes: ReadonlyArray<UpdatedRow>) => store.write(updateRows(sql, "pairs", changes))
  })
  const onFreshStore = <A, E>(test: Effect.Effect<A, E, Store | SqlClient.SqlClient>) =>
    test.pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  const stored = (where: string) =>
    Effect.map(query(`SELECT id, number, text FROM pairs WHERE ${where} ORDER BY number`), (rows) =>
      rows.map(({ id, number, text }) => `${id} ${number} ${text}`)
    )

  it.effect("any number of rows is changed, also none; other rows and columns stay", () =>
    onFreshStore(
      Effect.gen(function* () {
        const update = yield* scene
        yield* update([])
        yield* update(Array.from({ length: 1_100 }, (_, n) => ({ id: `${n}`, number: n + 10_000 })))
        assert.deepStrictEqual(yield* stored("number < 10002"), [
          ...Array.from({ length: 100 }, (_, n) => `${n + 1_100} ${n + 1_100} first`),
          "0 10000 first",
          "1 10001 first"
        ])
      })
    )
  )

  it.effect("each row has its own values; a row that is missing is not made", () =>
    onFreshStore(
      Effect.gen(function* () {
        const update = yield* scene
        yield* update([
          { text: 'a "text"', id: "1" },
          { id: "2", text: null },
          { id: "none", text: "third" }
        ])
        assert.deepStrictEqual(yield* stored("text IS NULL OR text <> 'first'"), ['1 1 a "text"', "2 2 null"])
      })
    )
  )
})
