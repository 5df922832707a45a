import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Latch, Logger, References, Schedule, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { LeaderTerm } from "../../../src/controlPlane/store/Leadership.ts"
import { backoff } from "../../../src/shared/work/backoff.ts"
import { makeKeyedLock } from "../../../src/shared/work/KeyedLock.ts"
import { makeWorkQueue, type StepOutcome, type WorkQueueOptions } from "../../../src/shared/work/WorkQueue.ts"

const every = Schedule.spaced("1 second")

/** Makes a queue that records each step as `<key> <attempt>` and ends it as `outcome` returns. */
const recorded = Effect.fnUntraced(function* (
  options: Partial<WorkQueueOptions<string, string, never>> & {
    readonly outcome?: (key: string) => Effect.Effect<StepOutcome, string>
  } = {}
) {
  const steps: Array<string> = []
  const { outcome = () => Effect.succeed<StepOutcome>("done"), ...rest } = options
  const queue = yield* makeWorkQueue<string, string, never>({
    name: "work",
    fields: (key) => ({ key }),
    backoff: every,
    step: (key, attempt) =>
      Effect.suspend(() => {
        steps.push(`${key} ${attempt}`)
        return outcome(key)
      }),
    ...rest
  })
  /** Advances the clock and returns the steps that started meanwhile. */
  const ran = (seconds: number) =>
    Effect.andThen(
      TestClock.adjust(seconds * 1000),
      Effect.sync(() => steps.splice(0))
    )
  return { queue, ran }
})

const again = () => Effect.succeed<StepOutcome>("again")

describe("WorkQueue: attempts", () => {
  it.effect("a key is worked on until its step is done, with the back-off between attempts", () =>
    Effect.gen(function* () {
      let left = 3
      const { ran, queue } = yield* recorded({
        outcome: () => Effect.sync(() => (--left > 0 ? "again" : "done"))
      })
      queue.add("a")
      assert.deepStrictEqual(yield* ran(0), ["a 1"])
      assert.isTrue(queue.has("a"))
      assert.deepStrictEqual(yield* ran(0.9), [])
      assert.deepStrictEqual(yield* ran(1.1), ["a 2", "a 3"])
      assert.deepStrictEqual([...queue.keys()], [])
    })
  )

  it.effect("delays double up to the maximum; half of each is random", () =>
    Effect.gen(function* () {
      const { ran, queue } = yield* recorded({
        outcome: again,
        backoff: backoff({ first: "1 second", longest: "4 seconds" })
      })
      queue.add("a")
      yield* ran(0)
      assert.deepStrictEqual(yield* ran(0.49), [])
      assert.deepStrictEqual(yield* ran(0.51), ["a 2"])
      assert.deepStrictEqual(yield* ran(0.49), [])
      assert.deepStrictEqual(yield* ran(1.51), ["a 3"])
      const { length } = yield* ran(90)
      assert.isAtLeast(length, 22)
      assert.isAtMost(length, 46)
    })
  )

  it.effect("a failure or a defect is retried, and logged once per cause", () => {
    const lines: Array<string> = []
    const logger = Logger.make(
      ({ logLevel, message }) => void lines.push(`${logLevel} ${[message].flat()[0]}`)
    )
    return Effect.gen(function* () {
      const outcomes = [Effect.fail("away"), Effect.fail("away"), Effect.die("broken"), Effect.die("broken")]
      const { ran, queue } = yield* recorded({ outcome: () => outcomes.shift() ?? Effect.succeed("done") })
      queue.add("a")
      assert.strictEqual((yield* ran(10)).length, 5)
      assert.deepStrictEqual(lines, ["Debug work is retried: away", "Error work failed, retrying"])
      assert.isFalse(queue.has("a"))
    }).pipe(
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "Debug")
    )
  })
})

describe("WorkQueue: wake-up", () => {
  it.effect("adding a waiting key starts its step at once and resets its back-off", () =>
    Effect.gen(function* () {
      const { ran, queue } = yield* recorded({
        outcome: again,
        backoff: Schedule.exponential("1 second")
      })
      queue.add("a")
      assert.strictEqual((yield* ran(60)).length, 6)
      queue.add("a")
      assert.deepStrictEqual(yield* ran(0), ["a 1"])
      assert.deepStrictEqual(yield* ran(1), ["a 2"])
    })
  )

  it.effect("adding a key during its step causes one more step", () =>
    Effect.gen(function* () {
      const gate = yield* Latch.make(false)
      const { ran, queue } = yield* recorded({ outcome: () => Effect.as(gate.await, "done") })
      queue.add("a")
      assert.deepStrictEqual(yield* ran(0), ["a 1"])
      queue.add("a")
      queue.add("a")
      yield* gate.open
      assert.deepStrictEqual(yield* ran(0), ["a 1"])
      assert.isFalse(queue.has("a"))
    })
  )

  it.effect("adding a key that waits for its permit causes one step", () =>
    Effect.gen(function* () {
      const gate = yield* Latch.make(false)
      const nodes = makeKeyedLock(2)
      const { ran, queue } = yield* recorded({
        permit: (key) => nodes.withLock(key.slice(0, 1)),
        outcome: () => Effect.as(gate.await, "done")
      })
      for (const key of ["a1", "a2", "a3", "b1"]) queue.add(key)
      assert.deepStrictEqual(yield* ran(0), ["a1 1", "a2 1", "b1 1"])
      queue.add("a3")
      yield* gate.open
      assert.deepStrictEqual(yield* ran(0), ["a3 1"])
    })
  )

  it.effect("keys are compared by value", () =>
    Effect.gen(function* () {
      let steps = 0
      const queue = yield* makeWorkQueue<{ readonly node: string }, never, never>({
        name: "work",
        fields: (key) => key,
        backoff: every,
        step: () =>
          Effect.sync(() => {
            steps += 1
            return "done"
          })
      })
      queue.add({ node: "a" })
      queue.add({ node: "a" })
      assert.isTrue(queue.has({ node: "a" }))
      yield* TestClock.adjust(0)
      assert.strictEqual(steps, 1)
    })
  )
})

describe("WorkQueue: leadership", () => {
  const terms = Effect.sync(() => new LeaderTerm())

  it.effect("only the leader works; pending keys are read when its term begins", () =>
    Effect.gen(function* () {
      const leadership = yield* terms
      const { ran, queue } = yield* recorded({
        leadership,
        outcome: again,
        resume: Effect.succeed(["pending"])
      })
      queue.add("a")
      assert.deepStrictEqual(yield* ran(5), [])
      leadership.begin()
      assert.deepStrictEqual(yield* ran(0), ["pending 1"])
      queue.add("b")
      assert.deepStrictEqual(yield* ran(0), ["b 1"])
      leadership.end()
      assert.deepStrictEqual(yield* ran(5), [])
      assert.isFalse(queue.has("b"))
      leadership.begin()
      assert.deepStrictEqual(yield* ran(0), ["pending 1"])
    })
  )

  it.effect("the read of pending keys is retried until it succeeds", () =>
    Effect.gen(function* () {
      let fails = 2
      const { ran } = yield* recorded({
        resume: Effect.suspend(() => (fails-- > 0 ? Effect.fail("away") : Effect.succeed(["pending"])))
      })
      assert.deepStrictEqual(yield* ran(1), [])
      assert.deepStrictEqual(yield* ran(1), ["pending 1"])
    })
  )

  it.effect("a step is interrupted when the scope of the queue closes", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      let interrupted = false
      const { ran, queue } = yield* recorded({
        outcome: () =>
          Effect.onInterrupt(Effect.never, () =>
            Effect.sync(() => {
              interrupted = true
            })
          )
      }).pipe(Scope.provide(scope))
      queue.add("a")
      yield* ran(0)
      yield* Scope.close(scope, Exit.void)
      assert.isTrue(interrupted)
      queue.add("b")
      assert.deepStrictEqual(yield* ran(1), [])
    })
  )
})

type Action = { readonly add: string } | { readonly wait: number } | "term"

const actions = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ add: fc.constantFrom("a", "b", "c") }) },
    { weight: 4, arbitrary: fc.record({ wait: fc.integer({ min: 0, max: 1500 }) }) },
    { weight: 1, arbitrary: fc.constant("term" as const) }
  ),
  { maxLength: 40 }
)
const results = fc.infiniteStream(
  fc.record({ takes: fc.integer({ min: 0, max: 700 }), ends: fc.constantFrom("done", "again", "fails") })
)

describe("WorkQueue: no key is lost", () => {
  it("every add is followed by a step, however long steps take and end, and whenever the leader changes", () =>
    fc.assert(
      fc.asyncProperty(actions, results, (actions, results) =>
        Effect.runPromise(
          losesNoKey(actions, results).pipe(
            Effect.scoped,
            Effect.provide(TestClock.layer()),
            Effect.provideService(References.MinimumLogLevel, "None")
          )
        )
      ),
      { numRuns: 300 }
    ))
})

const losesNoKey = Effect.fnUntraced(function* (
  actions: ReadonlyArray<Action>,
  results: Iterator<{ readonly takes: number; readonly ends: string }>
) {
  const leadership = new LeaderTerm()
  leadership.begin()
  /** For each key, the last add that no finished step has followed. */
  const pending = new Map<string, number>()
  let added = 0
  const queue = yield* makeWorkQueue<string, string, never>({
    name: "work",
    fields: (key) => ({ key }),
    backoff: every,
    leadership,
    resume: Effect.sync(() => [...pending.keys()]),
    step: Effect.fnUntraced(function* (key) {
      const seen = added
      const { value: result } = results.next()
      yield* Effect.sleep(result.takes)
      if (result.ends === "fails") return yield* Effect.fail("fails")
      if (result.ends === "again") return "again"
      if ((pending.get(key) ?? 0) <= seen) pending.delete(key)
      return "done"
    })
  })
  const act = (action: Action) => {
    if (action === "term") {
      return Effect.sync(() => {
        leadership.end()
        leadership.begin()
      })
    }
    if ("wait" in action) return TestClock.adjust(action.wait)
    return Effect.sync(() => {
      pending.set(action.add, ++added)
      queue.add(action.add)
    })
  }
  yield* Effect.forEach(actions, act, { discard: true })
  yield* TestClock.adjust("2 minutes")
  assert.deepStrictEqual([...pending.keys()], [])
  assert.deepStrictEqual([...queue.keys()], [])
})
