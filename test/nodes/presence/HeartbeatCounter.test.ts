import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { makeHeartbeatCounter } from "../../../src/nodes/presence/HeartbeatCounter.ts"

describe("design: heartbeats at other replicas", () => {
  it("only time in which a heartbeat could arrive counts; a lost node is given up in time", () => {
    const silence = makeHeartbeatCounter({
      lostAfter: Duration.seconds(30),
      givenUpAfter: Duration.seconds(100),
      silent: ["a", "b", "c"],
      lost: ["d"]
    })
    assert.deepStrictEqual(silence.advance(29_999), [])
    silence.record("b")
    silence.forget("c")
    assert.deepStrictEqual(silence.advance(1), [{ node_id: "a", kind: "lost" }])
    assert.deepStrictEqual(silence.advance(0), [], "once")
    assert.deepStrictEqual(silence.advance(30_000), [{ node_id: "b", kind: "lost" }])
    assert.deepStrictEqual(silence.advance(40_000), [
      { node_id: "d", kind: "given-up" },
      { node_id: "a", kind: "given-up" }
    ])
  })
})
