import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as TestClock from "effect/testing/TestClock"
import { type HostParts, sweep } from "../../../src/daemon/runtime/processRun.ts"

/** A host without processes, which counts the passes over them. */
const host = (started: Set<string> | undefined) => {
  let passes = 0
  const parts: HostParts = {
    node: "node",
    inherited: {},
    table: {
      members: () =>
        Effect.sync(() => {
          passes += 1
          return []
        }),
      names: Effect.succeed(new Set())
    },
    cgroups: undefined,
    killUser: () => Effect.void,
    started
  }
  return { parts, passes: () => passes }
}

const swept = Effect.fnUntraced(function* (parts: HostParts, server: string) {
  const fiber = yield* Effect.forkChild(sweep(parts, server))
  yield* TestClock.adjust("1 second")
  yield* Fiber.join(fiber)
})

describe("process runtime: the removal of a server", () => {
  it.effect("looks for processes of a server that was started, once", () =>
    Effect.gen(function* () {
      const { parts, passes } = host(new Set(["one"]))
      yield* swept(parts, "one")
      assert.strictEqual(passes(), 1)
      yield* swept(parts, "one")
      assert.strictEqual(passes(), 1)
    })
  )

  it.effect("of a server that was not started reads no processes of the host", () =>
    Effect.gen(function* () {
      const { parts, passes } = host(new Set(["one"]))
      yield* swept(parts, "two")
      assert.strictEqual(passes(), 0)
    })
  )

  it.effect("looks for processes of every server until those of earlier services are known", () =>
    Effect.gen(function* () {
      const { parts, passes } = host(undefined)
      yield* swept(parts, "two")
      assert.strictEqual(passes(), 1)
    })
  )
})
