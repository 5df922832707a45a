import { describe, expect, it } from "@effect/vitest"
import { ServerId } from "../../../src/domain/Id.ts"
import { DeletedServers } from "../../../src/servers/index/DeletedServers.ts"
import { plain, summaryOf } from "../../../src/servers/index/summary.ts"
import { record } from "../../support/samples.ts"

const server = (id: string, name?: string) => {
  const made = record({ id })
  const { blueprint_id, created_at } = made
  return {
    id: made.id,
    blueprint_id,
    created_at,
    labels: { team: "a" },
    summary: summaryOf(made, "local", plain),
    ...(name === undefined ? {} : { name })
  }
}

describe("deleted servers in memory", () => {
  it("a deleted server is as it was added, until it is here again", () => {
    const deleted = new DeletedServers()
    for (const one of [server("a"), server("b", "lobby")]) {
      deleted.add(one)
      expect(deleted.get(one.id)).toEqual(one)
      deleted.forget(one.id)
      expect(deleted.get(one.id)).toBeUndefined()
    }
  })

  it("the last 10,000 are kept", () => {
    const deleted = new DeletedServers()
    const ids = Array.from({ length: 10_001 }, (_, count) => ServerId.make(`srv_${count}`))
    for (const id of ids) deleted.add({ ...server("a"), id })
    expect(ids.filter((id) => deleted.get(id) === undefined)).toEqual(ids.slice(0, 1))
  })
})
