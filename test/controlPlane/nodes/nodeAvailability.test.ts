import { describe, expect, it } from "vitest"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import { invalidKeyReason } from "../../../src/controlPlane/nodes/nodeAvailability.ts"

const at = (hour: number) => `2026-01-01T${String(hour).padStart(2, "0")}:00:00.000Z`
const now = Date.parse(at(12))
const key = (expires_at: string | null, revoked_at: string | null) => ({
  key_id: "k",
  node_id: NodeId.make("n"),
  expires_at,
  revoked_at
})

describe("spec 6.1: why a node has no valid key", () => {
  it.each([
    ["a node that never had a key", [], undefined],
    ["one key without an expiry", [key(null, null)], undefined],
    ["one key that expires later", [key(at(13), null)], undefined],
    ["one key that has expired", [key(at(11), null)], "expired"],
    ["one key that expires now", [key(at(12), null)], "expired"],
    ["one key that is revoked", [key(null, at(11))], "revoked"],
    ["one key that is revoked and past its expiry", [key(at(11), at(10))], "revoked"],
    ["one valid key among others", [key(null, at(11)), key(at(13), null), key(at(11), null)], undefined],
    ["the last key was revoked", [key(at(9), null), key(null, at(10))], "revoked"],
    ["the last key has expired", [key(null, at(9)), key(at(10), null)], "expired"]
  ] as const)("%s", (_, bindings, why) => {
    expect(invalidKeyReason(bindings, now)).toBe(why)
  })
})
