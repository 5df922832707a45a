import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"

describe("the compile cache", () => {
  it.live("a command leaves the compiled code of the service as it is", () =>
    Effect.gen(function* () {
      const run = (args: ReadonlyArray<string>) => muster(args, { NODE_DEBUG_NATIVE: "COMPILE_CACHE" })
      yield* run(["serve", "--help"])
      yield* run(["servers", "--help"])
      const { stderr } = yield* run(["serve", "--help"])
      assert.include(stderr, "[compile cache]")
      assert.notInclude(stderr, "writing cache")
    })
  )
})
