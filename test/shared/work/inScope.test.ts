import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { during } from "../../../src/shared/work/inScope.ts"

const scene = Effect.sync(() => {
  const notes: Array<string> = []
  const noted = during(
    () => notes.push("begin"),
    () => notes.push("end")
  )
  return { notes, noted }
})

describe("during", () => {
  it.effect("runs an effect between a beginning and an end, each time that it runs", () =>
    Effect.gen(function* () {
      const { notes, noted } = yield* scene
      const work = noted(Effect.sync(() => notes.push("work")))
      yield* work
      yield* work
      assert.deepStrictEqual(notes, ["begin", "work", "end", "begin", "work", "end"])
    })
  )

  it.effect("runs the end also after a failure, a defect and an interruption", () =>
    Effect.gen(function* () {
      const { notes, noted } = yield* scene
      assert.isTrue(Exit.isFailure(yield* Effect.exit(noted(Effect.fail("broken")))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(noted(Effect.die("broken")))))
      const fiber = yield* Effect.forkChild(noted(Effect.never), { startImmediately: true })
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(notes, ["begin", "end", "begin", "end", "begin", "end"])
    })
  )
})
