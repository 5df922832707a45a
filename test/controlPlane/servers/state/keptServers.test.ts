import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { until } from "../../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const DAY = 86_400_000

/** A control plane with a server, and its record. */
const withRecord = Effect.gen(function* () {
  const { start } = yield* makeHarness()
  const { becomes, kept, records, servers, store } = yield* start()
  const { id } = yield* servers.create(request())
  yield* becomes(id, "offline")
  const [record] = yield* records
  return record === undefined ? assert.fail("the server has no record") : { id, kept, record, servers, store }
})

describe("spec 3.19: the number of kept servers", () => {
  it.live("a node keeps the newest 200 servers that one key has created, and those of other keys", () =>
    runHarness(
      Effect.gen(function* () {
        const { id, kept, record, servers, store } = yield* withRecord
        const tomorrow = (yield* Clock.currentTimeMillis) + DAY
        const keep = (n: number, created_by: string) =>
          kept.add({ ...record, id: ServerId.make(`kept${n}`), created_by }, tomorrow + n)
        const own = Array.from({ length: 203 }, (_, n) => keep(n, "own"))
        yield* store.write(Effect.all([keep(900, "other"), ...own], { discard: true }))
        yield* servers.remove(id, { force: true })
        const left = Effect.map(Effect.orDie(store.read(kept.idsOn(record.node_id))), (ids) =>
          ids.map((one) => Number(one.slice("kept".length))).toSorted((one, other) => one - other)
        )
        yield* until(
          "the oldest are purged",
          Effect.map(left, ({ length }) => length === 201)
        )
        assert.deepStrictEqual(yield* left, [...Array.from({ length: 200 }, (_, n) => n + 3), 900])
      })
    )
  )
})

describe("spec 3.19: the order in which kept servers give their disk", () => {
  it.live("those of the keys that took disk last are first, then of those before, then of any", () =>
    runHarness(
      Effect.gen(function* () {
        const { kept, record, store } = yield* withRecord
        const limits = { ...record.definition.limits, disk_space: 1 }
        const limited = { ...record, definition: { ...record.definition, limits } }
        const now = yield* Clock.currentTimeMillis
        const keys = ["none", "before", "last", "last"]
        const own = keys.map((created_by, n) =>
          kept.add({ ...limited, id: ServerId.make(`kept${n}`), created_by }, now + n)
        )
        yield* store.write(Effect.all(own, { discard: true }))
        const oldest = (...creators: ReadonlyArray<string>) =>
          Effect.map(
            store.read(
              kept.oldestOn(
                record.node_id,
                creators.map((key) => new Set([key]))
              )
            ),
            (found) => found?.id
          )
        assert.strictEqual(yield* oldest("last", "before"), "kept2")
        assert.strictEqual(yield* oldest("before"), "kept1")
        assert.strictEqual(yield* oldest(), "kept0")
      })
    )
  )
})
