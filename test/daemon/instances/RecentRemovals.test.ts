import { assert, describe, it } from "vitest"
import { RecentRemovals } from "../../../src/daemon/instances/instanceRemoval.ts"
import { plain } from "../../support/ids.ts"

const id = "srv_01ARZ3NDEKTSV4RRFFQ69G5FAV"

describe("spec 9.4: a creation that arrives after its removal is ignored", () => {
  it("a creation is ignored if its last sequence is not above the removed server's", () => {
    const removed = plain(new RecentRemovals())
    removed.add(id, 0, { sequence: 7 })
    assert.isTrue(removed.covers({ id, last_sequence: 7 }, 1))
    assert.isTrue(removed.covers({ id }, 1))
    assert.isFalse(removed.covers({ id, last_sequence: 8 }, 1))
    assert.isFalse(removed.covers({ id: "srv_01ARZ3NDEKTSV4RRFFQ69G5FAW", last_sequence: 0 }, 1))
  })

  it("a creation is ignored if the removed server was never created on the node", () => {
    const removed = plain(new RecentRemovals())
    removed.add(id, 0)
    assert.isTrue(removed.covers({ id, last_sequence: 0 }, 1))
    assert.isTrue(removed.covers({ id, last_sequence: 1_000 }, 1))
  })

  it("a creation is ignored if it has the migration id of the removed copy; another migration id is a new copy", () => {
    const removed = plain(new RecentRemovals())
    removed.add(id, 0, { sequence: 7, arrival: "a" })
    removed.add(id, 1)
    assert.isTrue(removed.covers({ id, last_sequence: 9, arrival: "a" }, 2))
    assert.isFalse(removed.covers({ id, last_sequence: 3, arrival: "b" }, 2))
  })

  it("a removal is forgotten when the server is created, after a minute, and beyond 10,000 removals", () => {
    const removed = plain(new RecentRemovals())
    removed.add(id, 0)
    assert.isTrue(removed.covers({ id }, 59_999))
    assert.isFalse(removed.covers({ id }, 60_000))
    removed.add(id, 60_000)
    removed.forget(id)
    assert.isFalse(removed.covers({ id }, 60_001))
    for (let n = 0; n <= 10_000; n++) removed.add(`srv_${n}`, 60_001)
    assert.isFalse(removed.covers({ id: "srv_0" }, 60_002))
    assert.isTrue(removed.covers({ id: "srv_1" }, 60_002))
    assert.isTrue(removed.covers({ id: "srv_10000" }, 60_002))
  })
})
