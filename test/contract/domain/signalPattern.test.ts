import { assert, describe, it } from "@effect/vitest"
import { signalPattern } from "../../../src/contract/domain/ConsoleLine.ts"

describe("blueprints, software: online-signal", () => {
  it("flags at the beginning of a pattern apply to all of it", () => {
    assert.isTrue(signalPattern("(?i)server is READY").test("Server is ready"))
    assert.isFalse(signalPattern("server is READY").test("Server is ready"))
    assert.strictEqual(signalPattern("(?ims)x").flags, "ims")
    assert.throws(() => signalPattern("x(?i)y"), SyntaxError)
  })
})
