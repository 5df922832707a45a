import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { makeHeartbeatCounter } from "../../../../src/controlPlane/nodes/presence/Liveness.ts"

describe("design: heartbeats at other replicas", () => {
  it("only time in which a heartbeat could arrive counts; a lost node is given up in time", () => {
    const silence = makeHeartbeatCounter({
      heartbeatTimeout: Duration.seconds(30),
      nodeLostAfter: Duration.seconds(100),
      silent: ["a", "b", "c"].map((id) => NodeId.make(id)),
      lost: [NodeId.make("d")]
    })
    assert.deepStrictEqual(silence.advance(29_999), [])
    silence.record(NodeId.make("b"))
    silence.forget(NodeId.make("c"))
    assert.deepStrictEqual(silence.advance(1), [{ node_id: NodeId.make("a"), kind: "lost" }])
    assert.deepStrictEqual(silence.advance(0), [], "once")
    assert.deepStrictEqual(silence.advance(30_000), [{ node_id: NodeId.make("b"), kind: "lost" }])
    assert.deepStrictEqual(silence.advance(40_000), [
      { node_id: NodeId.make("d"), kind: "given-up" },
      { node_id: NodeId.make("a"), kind: "given-up" }
    ])
  })
})
