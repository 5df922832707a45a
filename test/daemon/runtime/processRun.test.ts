import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { killAll } from "../../../src/daemon/runtime/processRun.ts"
import type { ProcessTable } from "../../../src/daemon/runtime/processTable.ts"

/** A table without processes that counts how often it reads those of the host. */
const counting = () => {
  let readAt = Number.NEGATIVE_INFINITY
  let reads = 0
  const table: ProcessTable = {
    members: (_, __, maxAgeMs) =>
      Effect.sync(() => {
        const now = performance.now()
        if (now - readAt > maxAgeMs) {
          reads += 1
          readAt = now
        }
        return []
      }),
    names: Effect.succeed(new Set())
  }
  return { table, reads: () => reads }
}

describe("process runtime: kills", () => {
  it.live("kills of a moment share a pass over the processes of the host, and a later one has its own", () =>
    Effect.gen(function* () {
      const { reads, table } = counting()
      const kill = killAll(
        {
          node: "node",
          inherited: {},
          table,
          cgroups: undefined,
          killUser: () => Effect.void,
          started: undefined
        },
        "server",
        {
          pid: 1,
          start: "1"
        }
      )
      yield* Effect.all(
        Array.from({ length: 50 }, () => kill),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(reads(), 1)
      yield* kill
      assert.strictEqual(reads(), 2)
    })
  )
})
