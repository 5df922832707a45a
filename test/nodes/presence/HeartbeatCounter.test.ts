import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { makeHeartbeatCounter } from "../../../src/nodes/presence/HeartbeatCounter.ts"

describe("design: silence of nodes that other replicas hear, too", () => {
  it("counts only time in which they could have been heard; those that are lost already are given up", () => {
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
