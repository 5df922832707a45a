import { describe, expect, it } from "vitest"
import { invalidKeyReason } from "../../src/nodes/nodeAvailability.ts"

const at = (hour: number) => `2026-01-01T${String(hour).padStart(2, "0")}:00:00.000Z`
const now = Date.parse(at(12))
const key = (expires_at: string | null, revoked_at: string | null) => ({
  key_id: "k",
  node_id: "n",
  expires_at,
  revoked_at
})

describe("decisions, section 5: why a node has no key that is valid", () => {
  it.each([
    ["it never had one", [], undefined],
    ["one is valid for ever", [key(null, null)], undefined],
    ["one is valid until later", [key(at(13), null)], undefined],
    ["one has expired", [key(at(11), null)], "expired"],
    ["one ends at this moment", [key(at(12), null)], "expired"],
    ["one is revoked", [key(null, at(11))], "revoked"],
    ["one is revoked that would have expired by now", [key(at(11), at(10))], "revoked"],
    ["one is valid beside others", [key(null, at(11)), key(at(13), null), key(at(11), null)], undefined],
    ["the last one was revoked", [key(at(9), null), key(null, at(10))], "revoked"],
    ["the last one has expired", [key(null, at(9)), key(at(10), null)], "expired"]
  ] as const)("%s", (_, bindings, why) => {
    expect(invalidKeyReason(bindings, now)).toBe(why)
  })
})
