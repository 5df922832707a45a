import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { serverId, serverIdPattern } from "../../src/domain/Id.ts"

const random = fc.uint8Array({ minLength: 16, maxLength: 16 })

describe("decisions, section 3: server ids", () => {
  it("an id is `srv_` and a ULID", () => {
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 48 - 1 }), random, (at, bytes) =>
        assert.match(serverId(at, bytes), serverIdPattern)
      )
    )
  })

  it("ids sort by time of creation", () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 2 ** 47 }),
        fc.integer({ min: 1, max: 2 ** 20 }),
        random,
        random,
        (at, later, a, b) => {
          assert.isTrue(serverId(at, a) < serverId(at + later, b))
        }
      )
    )
  })
})
