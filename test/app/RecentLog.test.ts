import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { LoggingLayer, RecentLog } from "../../src/app/logging.ts"

describe("GET /api/system/log: the lines in memory", () => {
  it.effect("the newest 1,000 lines stay, oldest first, each cut to 4,096 characters", () =>
    Effect.gen(function* () {
      const { add, lines } = yield* RecentLog
      for (let n = 1; n <= 1500; n++) add(`line ${n}`)
      add("x".repeat(5000))
      const kept = yield* lines
      assert.strictEqual(kept.length, 1000)
      assert.deepStrictEqual([kept[0], kept[998]], ["line 502", "line 1500"])
      assert.deepStrictEqual([kept[999]?.length, kept[999]?.at(-1)], [4096, "…"])
    }).pipe(Effect.provide(RecentLog.layer))
  )

  it.effect("log entries arrive in the set format, from the set level on", () =>
    Effect.gen(function* () {
      const { add, lines } = yield* RecentLog
      yield* Effect.logInfo("hidden").pipe(
        Effect.andThen(Effect.logWarning("node lost")),
        Effect.annotateLogs({ node_id: "n1" }),
        Effect.provide(LoggingLayer({ logFormat: "json", logLevel: "warn" }, add))
      )
      const [line = "", ...others] = yield* lines
      assert.deepInclude(JSON.parse(line), { message: "node lost", node_id: "n1", level: "WARN" })
      assert.deepStrictEqual(others, [])
    }).pipe(Effect.provide(RecentLog.layer))
  )
})
