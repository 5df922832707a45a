import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { insertRows } from "../../../../src/controlPlane/store/sql/rows.ts"
import { databases, freshStore, query } from "../support/database.ts"

const rowsOf = (count: number, prefix: string) =>
  Array.from({ length: count }, (_, n) => ({
    key: `${prefix}${String(n).padStart(4, "0")}`,
    body_hash: "hash",
    response: `{"n":${n}}`,
    created_at: n
  }))

const stored = Effect.map(query("SELECT key, response, created_at FROM idempotency ORDER BY key"), (rows) =>
  rows.map(({ created_at, key, response }) => `${key} ${response} ${created_at}`)
)
const lines = (rows: ReturnType<typeof rowsOf>) =>
  rows.map(({ created_at, key, response }) => `${key} ${response} ${created_at}`)

describe.each(databases)("insertRows (%s)", (kind) => {
  const inserting = Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const store = yield* Store
    return {
      sql,
      store,
      insert: (rows: ReadonlyArray<Readonly<Record<string, unknown>>>, onConflict?: string) =>
        insertRows(sql, "idempotency", rows, onConflict)
    }
  })
  const onFreshStore = <A, E>(test: Effect.Effect<A, E, Store | SqlClient.SqlClient>) =>
    test.pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))

  it.effect("any number of rows is inserted, also none, whatever the order of their columns", () =>
    onFreshStore(
      Effect.gen(function* () {
        const { insert, store } = yield* inserting
        const rows = rowsOf(1_200, "a")
        const [first, ...others] = rows
        const turned = others.map(({ body_hash, created_at, key, response }) => ({
          created_at,
          response,
          key,
          body_hash
        }))
        yield* store.write(insert(first === undefined ? [] : [first, ...turned]))
        yield* store.write(insert([]))
        assert.deepStrictEqual(yield* stored, lines(rows))
      })
    )
  )

  it.effect("texts and null are stored as they are; half of a surrogate pair becomes U+FFFD", () =>
    onFreshStore(
      Effect.gen(function* () {
        const { insert, sql, store } = yield* inserting
        const [row] = rowsOf(1, "a")
        const response = `"\\ \n\t{}[] \u007f \u00e9 \u{1f600} \\u0041`
        yield* store.write(
          insert([{ ...row, response: `${response}\ud800`, created_at: 9_007_199_254_740_991 }])
        )
        assert.deepStrictEqual(yield* stored, [`${row?.key} ${response}\ufffd 9007199254740991`])
        const entry = { cursor: 1, at: 2, topic: "t", server_id: "s", blueprint_id: "", payload: "null" }
        yield* store.write(insertRows(sql, "journal", [{ ...entry, labels: null }]))
        const labels = yield* query("SELECT labels FROM journal")
        assert.deepStrictEqual(
          labels.map((found) => found.labels),
          [null]
        )
      })
    )
  )

  it.effect("the end of the statement applies to each row", () =>
    onFreshStore(
      Effect.gen(function* () {
        const { insert, store } = yield* inserting
        const rows = rowsOf(3, "a")
        yield* store.write(insert(rows))
        const later = rows.map((row) => ({ ...row, response: "later" }))
        yield* store.write(insert(later, "ON CONFLICT (key) DO NOTHING"))
        assert.deepStrictEqual(yield* stored, lines(rows))
        yield* store.write(
          insert(later.slice(1), "ON CONFLICT (key) DO UPDATE SET response = excluded.response")
        )
        assert.deepStrictEqual(yield* stored, lines([...rows.slice(0, 1), ...later.slice(1)]))
      })
    )
  )

  it.effect("a refused row undoes the rows before it with their savepoint, and nothing else", () =>
    onFreshStore(
      Effect.gen(function* () {
        const { insert, sql, store } = yield* inserting
        const [taken, ...free] = rowsOf(3, "a")
        const others = rowsOf(1, "b")
        yield* store.write(
          Effect.gen(function* () {
            yield* insert(others)
            if (taken === undefined) return
            const refused = yield* Effect.exit(sql.withTransaction(insert([taken, ...free, taken])))
            assert.strictEqual(refused._tag, "Failure")
          })
        )
        assert.deepStrictEqual(yield* stored, lines(others))
      })
    )
  )
})
