import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import type { LiveNews } from "../../../src/controlPlane/events/LiveFeed.ts"
import { until } from "../../support/eventually.ts"
import { makeHarness, request, runHarness } from "./support/harness.ts"

describe("spec 3.11: the opt-in topic stats", () => {
  it.effect(
    "a node is called once for each interval, for all streams together, and not without a stream",
    () =>
      Effect.gen(function* () {
        const { daemon, start } = yield* makeHarness()
        const { becomes, live, servers, stats } = yield* start()
        const one = yield* servers.create(request())
        const two = yield* servers.create(request())
        for (const { id } of [one, two]) yield* becomes(id, "offline")
        const received: Array<LiveNews> = []
        live.receive((news) => received.push(...news))
        const calls = () => daemon.calls.filter((call) => call === "statsOfMany").length
        const seen = (count: number) =>
          until(
            `${count} figures`,
            Effect.sync(() => received.length === count)
          )
        const topics = new Set(["stats" as const])
        yield* Effect.gen(function* () {
          yield* stats.listen({ topics, interval: 5 })
          yield* stats.listen({ topics, interval: 5, blueprintIds: new Set(["none"]) })
          yield* seen(2)
          assert.strictEqual(calls(), 1)
          assert.deepStrictEqual(
            received.map(({ server_id }) => server_id).toSorted(),
            [one.id, two.id].toSorted()
          )
          yield* TestClock.adjust("5 seconds")
          yield* seen(4)
          assert.strictEqual(calls(), 2)
        }).pipe(Effect.scoped)
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(calls(), 2)
        yield* Effect.gen(function* () {
          yield* stats.listen({ topics, serverIds: new Set([one.id]) })
          yield* seen(5)
          assert.strictEqual(received.at(-1)?.server_id, one.id)
        }).pipe(Effect.scoped)
      }).pipe(runHarness)
  )
})
