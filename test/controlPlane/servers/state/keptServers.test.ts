import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { until } from "../../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const DAY = 86_400_000

describe("spec 3.19: the number of kept servers", () => {
  it.live("a node keeps the newest 200 servers that one key has created, and those of other keys", () =>
    runHarness(
      Effect.gen(function* () {
        const { start } = yield* makeHarness()
        const { becomes, kept, records, servers, store } = yield* start()
        const { id } = yield* servers.create(request())
        yield* becomes(id, "offline")
        const [record] = yield* records
        if (record === undefined) return assert.fail("the server has no record")
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
