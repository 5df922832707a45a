import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { hidePaths } from "../../../src/daemon/install/installLog.ts"

describe("spec 4.6: output shows no path of the node", () => {
  it("paths are replaced however the output arrives, and nothing else changes", () => {
    const pieces = ["/data/é", "/data/é/base", "/da", "ta", "/", "é", "x", "\n", "/base"]
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...pieces), { maxLength: 20 }).map((found) => found.join("")),
        fc.array(fc.nat(6), { maxLength: 20 }),
        (text, sizes) => {
          const output = hidePaths([
            ["/data/é/base", "/home"],
            ["/data/é", "/mnt"]
          ])
          const data = Buffer.from(text)
          const shown: Array<Uint8Array> = []
          let at = 0
          for (const size of [...sizes, data.length]) {
            shown.push(output.filter(data.subarray(at, at + size)))
            at += size
          }
          assert.strictEqual(
            Buffer.concat([...shown, output.rest()]).toString(),
            text.replaceAll("/data/é/base", "/home").replaceAll("/data/é", "/mnt")
          )
        }
      )
    )
  })
})
