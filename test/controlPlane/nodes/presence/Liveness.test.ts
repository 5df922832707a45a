import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { type Expiry, Liveness } from "../../../../src/controlPlane/nodes/presence/Liveness.ts"
import { plain } from "../../../support/ids.ts"

const options = { heartbeatTimeout: 30, nodeLostAfter: 100 }

const anyStep = fc.record({
  pause: fc.nat({ max: 40 }),
  node: fc.constantFrom("a", "b", "c", "d"),
  kind: fc.constantFrom("hear", "hear", "forget", "expire")
})

describe("spec 9.6: node gone", () => {
  it("each missed deadline is reported once, when it is due, in order", () => {
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 80 }), (steps) => {
        const liveness = plain(new Liveness(options))
        const model = new Map<string, { since: number; stage: number }>()
        let now = 0
        for (const { pause, node, kind } of steps) {
          now += pause
          if (kind === "hear") {
            liveness.record(node, now)
            model.delete(node)
            model.set(node, { since: now, stage: 0 })
          } else if (kind === "forget") {
            liveness.forget(node)
            model.delete(node)
          } else {
            const expected: Array<Expiry> = []
            for (const [stage, kind, after] of [
              [0, "lost", options.heartbeatTimeout],
              [1, "given-up", options.nodeLostAfter]
            ] as const) {
              for (const [node_id, state] of model) {
                if (state.stage !== stage || state.since + after > now) continue
                state.stage += 1
                expected.push({ node_id: NodeId.make(node_id), kind })
              }
            }
            const expired = liveness.expire(now)
            assert.sameDeepMembers([...expired], expected)
            const due = [...model.values()].flatMap(({ since, stage }) =>
              stage === 0
                ? [since + options.heartbeatTimeout]
                : stage === 1
                  ? [since + options.nodeLostAfter]
                  : []
            )
            const next = liveness.untilNext(now)
            if (next === undefined) assert.deepStrictEqual(due, [])
            else assert.isAtMost(now + next, Math.min(now + options.heartbeatTimeout, ...due))
          }
        }
      })
    )
  })

  it("the next check is never due at once", () => {
    const liveness = plain(new Liveness(options))
    liveness.record("a", 0)
    assert.strictEqual(liveness.untilNext(500), 1)
    liveness.record("a", 500)
    assert.strictEqual(liveness.untilNext(505), 25)
    liveness.forget("a")
    assert.isUndefined(liveness.untilNext(505))
  })

  it("a lost node is given up in time unless a heartbeat arrives", () => {
    const liveness = plain(new Liveness(options))
    liveness.lose("a", 0)
    liveness.lose("b", 0)
    liveness.record("b", 10)
    assert.deepStrictEqual(liveness.expire(99), [{ node_id: NodeId.make("b"), kind: "lost" }])
    assert.deepStrictEqual(liveness.expire(100), [{ node_id: NodeId.make("a"), kind: "given-up" }])
  })
})
