import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { serverId, serverIdPattern } from "../../../src/contract/domain/Id.ts"

const random = fc.uint8Array({ minLength: 16, maxLength: 16 })

describe("spec 3.2", () => {
  it("a new id has twelve characters [a-z0-9], the first a letter", () => {
    fc.assert(fc.property(random, (bytes) => assert.match(serverId(bytes), /^[a-z][a-z0-9]{11}$/)))
  })

  it("each of its characters depends on the random bytes", () => {
    const ids = fc.sample(random, 500).map(serverId)
    for (let at = 0; at < 12; at++) assert.isAbove(new Set(ids.map((id) => id[at])).size, 15)
  })

  it("ids of earlier versions stay valid", () => {
    assert.match("srv_01KAZ4Q8Y6M3T2N5V7W9X1C0DE", serverIdPattern)
    assert.match(serverId(new Uint8Array(16)), serverIdPattern)
    for (const other of ["", "..", "0abcdefghijk", "k7f", "abcdefghijklm", "srv_1"]) {
      assert.notMatch(other, serverIdPattern)
    }
  })
})
