import { assert, describe, it } from "@effect/vitest"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"

describe("spec 3.2: random bytes", () => {
  it("no bytes are given out twice, also beyond what is read from the system at a time", () => {
    const seen = new Set<string>()
    for (let n = 0; n < 1_000; n++) {
      const bytes = idBytes(n % 2 === 0 ? 16 : 12)
      assert.strictEqual(bytes.length, n % 2 === 0 ? 16 : 12)
      seen.add(Buffer.from(bytes.subarray(0, 12)).toString("hex"))
    }
    assert.strictEqual(seen.size, 1_000)
  })

  it("bytes that were given out stay as they are", () => {
    const first = idBytes(16)
    const before = Buffer.from(first).toString("hex")
    for (let n = 0; n < 1_000; n++) idBytes(16)
    assert.strictEqual(Buffer.from(first).toString("hex"), before)
  })
})
