import { assert, describe, it } from "@effect/vitest"
import { amountHint } from "../../../src/contract/domain/units.ts"

describe("Units of numbers", () => {
  const cases = {
    "a number of MiB": {
      "4G": 4096,
      "4g": 4096,
      "512Mi": 512,
      "512 MiB": 512,
      "2GB": 2048,
      "512K": 1,
      "1.5T": 1_572_864
    },
    "a number of MB": { "10G": 10_000, "10GB": 10_000, "10Gi": 10_738, "10 GiB": 10_738, "500m": 500 },
    "a number in percent of one thread": { "50%": 50, "2 cores": 200, "1.5 cpus": 150, "250m": 25 },
    "a number of seconds": { "30s": 30, "5m": 300, "5 minutes": 300, "12h": 43_200, "7d": 604_800 }
  }

  it("the hint about another spelling is the amount in the unit of the field", () => {
    for (const [unit, spellings] of Object.entries(cases)) {
      for (const [text, amount] of Object.entries(spellings))
        assert.strictEqual(amountHint(unit, text), ` (${amount} here)`, `${text} as ${unit}`)
    }
  })

  it("there is no hint about a text that is no amount", () => {
    for (const unit of [...Object.keys(cases), "a number", "toString"]) {
      for (const text of ["", "4", "G", "4X", "4 toString", "-4G", "lots", "1e3G", 5, null, {}])
        assert.strictEqual(amountHint(unit, text), "", `${text} as ${unit}`)
    }
  })
})
