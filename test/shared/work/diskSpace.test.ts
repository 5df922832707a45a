import { assert, describe, it } from "@effect/vitest"
import { reserveSize, roomForReserve } from "../../../src/shared/work/diskSpace.ts"

const MIB = 1024 * 1024

describe("Operations, full disk: the reserve", () => {
  it("the reserve has 16 MiB, or an eighth of a disk below 128 MiB, in whole bytes", () => {
    assert.deepStrictEqual(
      [0, 7, 80 * MIB, 128 * MIB, 500 * MIB].map((total) => reserveSize(total)),
      [0, 0, 10 * MIB, 16 * MIB, 16 * MIB]
    )
  })

  it("the reserve needs one and a half times its size of free space", () => {
    assert.strictEqual(roomForReserve(80 * MIB), 15 * MIB)
  })
})
