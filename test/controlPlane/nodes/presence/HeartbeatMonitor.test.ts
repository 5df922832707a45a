import { assert, describe, it } from "@effect/vitest"
import { Clock, Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { type Expiry, makeHeartbeatMonitor } from "../../../../src/controlPlane/nodes/presence/Liveness.ts"

const watching = Effect.fnUntraced(function* (initial: ReadonlyArray<string>) {
  const seen: Array<Expiry> = []
  const silence = yield* makeHeartbeatMonitor({
    heartbeatTimeout: Duration.seconds(30),
    nodeLostAfter: Duration.minutes(10),
    initial: initial.map((id) => NodeId.make(id)),
    onExpiry: (expiry) => seen.push(expiry)
  })
  return { seen, silence }
})

describe("spec 9.6: node gone", () => {
  it.effect("a node without a heartbeat is lost after 30 s and given up after 10 min", () =>
    Effect.gen(function* () {
      const { seen, silence } = yield* watching(["a", "b"])
      yield* TestClock.adjust("20 seconds")
      silence.record(NodeId.make("b"))
      yield* TestClock.adjust("9999 millis")
      assert.deepStrictEqual(seen, [])
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(seen, [{ node_id: "a", kind: "lost" }])
      silence.forget(NodeId.make("b"))
      yield* TestClock.adjust("9 minutes")
      assert.strictEqual(seen.length, 1)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(seen.slice(1), [{ node_id: "a", kind: "given-up" }])
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(seen.length, 2)
    })
  )

  it.effect("a wall clock that is set forward or back has no effect", () =>
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      let set = 0
      const wall: Clock.Clock = {
        ...clock,
        currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + set,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (now) => now + set)
      }
      yield* Effect.gen(function* () {
        const { seen, silence } = yield* watching(["a", "b"])
        yield* TestClock.adjust("20 seconds")
        set = 7_200_000
        silence.record(NodeId.make("b"))
        yield* TestClock.adjust("9 seconds")
        assert.deepStrictEqual(seen, [])
        set = -7_200_000
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(seen, [{ node_id: "a", kind: "lost" }])
        yield* TestClock.adjust("20 seconds")
        assert.deepStrictEqual(seen.slice(1), [{ node_id: "b", kind: "lost" }])
      }).pipe(Effect.provideService(Clock.Clock, wall))
    })
  )

  /** Freezes the process at a moment, for an hour. */
  const standing = Effect.map(Clock.Clock, (clock) => {
    let skipped = 0n
    const frozen: Clock.Clock = {
      ...clock,
      monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + skipped
    }
    return {
      frozen,
      standStill: Effect.sync(() => {
        skipped += 3_600_000_000_000n
      })
    }
  })

  it.effect("time in which the process itself is frozen does not count", () =>
    Effect.gen(function* () {
      const { frozen, standStill } = yield* standing
      yield* Effect.gen(function* () {
        const { seen, silence } = yield* watching(["a", "b"])
        yield* TestClock.adjust("25 seconds")
        yield* standStill
        // The second in which the process was frozen does not count either.
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(seen, [])
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(seen, [
          { node_id: "a", kind: "lost" },
          { node_id: "b", kind: "lost" }
        ])
        silence.record(NodeId.make("b"))
        yield* TestClock.adjust("9 minutes")
        assert.deepStrictEqual(seen.slice(2), [{ node_id: "b", kind: "lost" }])
        yield* TestClock.adjust("30 seconds")
        assert.deepStrictEqual(seen.slice(3), [{ node_id: "a", kind: "given-up" }])
      }).pipe(Effect.provideService(Clock.Clock, frozen))
    })
  )

  it.effect("after a freeze, waiting heartbeats are read before any node is lost", () =>
    Effect.gen(function* () {
      const { frozen, standStill } = yield* standing
      yield* Effect.gen(function* () {
        const { seen, silence } = yield* watching(["a"])
        yield* TestClock.adjust("29500 millis")
        yield* standStill
        yield* TestClock.adjust("500 millis")
        assert.deepStrictEqual(seen, [])
        silence.record(NodeId.make("a"))
        yield* TestClock.adjust("29 seconds")
        assert.deepStrictEqual(seen, [])
      }).pipe(Effect.provideService(Clock.Clock, frozen))
    })
  )

  it.effect("a node whose first heartbeat after a freeze is its last is lost in time", () =>
    Effect.gen(function* () {
      const { frozen, standStill } = yield* standing
      yield* Effect.gen(function* () {
        const { seen, silence } = yield* watching(["a"])
        yield* TestClock.adjust("10 seconds")
        yield* standStill
        silence.record(NodeId.make("a"))
        yield* TestClock.adjust("29 seconds")
        assert.deepStrictEqual(seen, [])
        yield* TestClock.adjust("2 seconds")
        assert.deepStrictEqual(seen, [{ node_id: "a", kind: "lost" }])
      }).pipe(Effect.provideService(Clock.Clock, frozen))
    })
  )
})
