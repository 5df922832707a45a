import { assert, describe, it } from "@effect/vitest"
import { serverExample } from "../../../src/api/examples.ts"
import { servers } from "../../../src/cli/servers/listing.ts"
import { tableOfItems } from "../../../src/cli/shared/output.ts"
import type { Server } from "../../../src/domain/Server.ts"

const shown = (server: Partial<Server>) => tableOfItems(servers, [{ ...serverExample, ...server }])

describe("life.md, Stopping and restarting: the list of servers", () => {
  it("a server between a crash and its restart differs from a stopped one", () => {
    const next_at = new Date(Date.now() + 3_600_000).toISOString()
    assert.match(
      shown({ status: "offline", restart: { attempt: 2, next_at } }),
      /offline, restarts in \S+ \(2\)/
    )
    assert.notInclude(shown({ status: "offline", restart: null }), "restarts")
    assert.notInclude(shown({ status: "running", restart: { attempt: 2, next_at } }), "restarts")
  })
})
