import { assert, describe, it } from "@effect/vitest"
import { servers } from "../../../src/cli/servers/listing.ts"
import { shownServer } from "../../../src/cli/servers/servers.ts"
import { tableOfItems } from "../../../src/cli/shared/output.ts"
import { serverExample } from "../../../src/contract/api/examples.ts"
import type { Server } from "../../../src/contract/domain/Server.ts"

const stats: NonNullable<Server["stats"]> = {
  memory_bytes: null,
  memory_limit_bytes: 0,
  cpu_absolute: null,
  cpu_absolute_limit: 0,
  network: { rx_bytes: null, tx_bytes: null },
  uptime: null,
  state: "running",
  disk_bytes: null,
  disk_max: 0,
  overlay_bytes: null
}

const shown = (server: Partial<Server>) => tableOfItems(servers, [{ ...serverExample, ...server }])

describe("spec 3.9: the list of servers", () => {
  it("a server between a crash and its restart differs from a stopped one", () => {
    const next_at = new Date(Date.now() + 3_600_000).toISOString()
    assert.match(shown({ status: "offline", restart: { attempt: 2, next_at } }), /offline, restart 2 in \S+/)
    assert.notInclude(shown({ status: "offline", restart: null }), ", restart ")
    assert.notInclude(shown({ status: "running", restart: { attempt: 2, next_at } }), ", restart ")
  })
})

describe("spec 3.15: the condition of a server", () => {
  it("a server that waits for its restart, or that gets none, is shown with its last crash", () => {
    const last_crash = {
      id: "crash",
      server_id: serverExample.id,
      blueprint_id: serverExample.blueprint_id,
      node_id: serverExample.node_id,
      version: "1",
      reason: "exit code 5",
      exit_code: 5,
      out_of_memory: false,
      started_at: null,
      crashed_at: "2026-01-01T00:00:00.000Z",
      uptime_seconds: null,
      restart: null
    }
    const condition = (restart: NonNullable<Server["restart"]> | null) =>
      tableOfItems(servers, [{ ...serverExample, problem: null, restart, last_crash }], true)
    const crash = "last crash 2026-01-01T00:00:00.000Z: exit code 5"
    const next_at = "2026-01-01T00:00:05.000Z"
    assert.include(condition({ attempt: 1, next_at }), `restart 1 at ${next_at}; ${crash}`)
    assert.include(
      condition({ given_up: true, reason: "5 restarts in 600 s" }),
      `no restart: 5 restarts in 600 s; ${crash}`
    )
    assert.include(condition(null), crash)
  })
})

describe("operations, Warnings of a server", () => {
  it("a server is shown with its warnings", () => {
    const warnings = [
      { code: "limits_not_enforced", detail: "the node does not enforce memory_limit" },
      { code: "listens_on_all_addresses", detail: "the server listens on all addresses" }
    ]
    const table = (of: NonNullable<Server["stats"]> | null) =>
      tableOfItems(shownServer, [{ ...serverExample, stats: of }], true)
    assert.include(
      table({ ...stats, warnings }),
      "the node does not enforce memory_limit; the server listens on all addresses"
    )
    assert.notInclude(table(null), "enforce")
  })
})

describe("docs/api.md: why a server cannot be started, or why its node has stopped it", () => {
  it("the condition tells a stop by the node from a refused start", () => {
    const condition = (code: string) => {
      const problem = { code, detail: "it is so", hint: "Wait.", since: "2026-01-01T00:00:00.000Z" }
      return tableOfItems(servers, [{ ...serverExample, problem }], true)
    }
    assert.include(condition("409"), "cannot be started since 2026-01-01T00:00:00.000Z: it is so")
    assert.include(condition("507"), "stopped since 2026-01-01T00:00:00.000Z: it is so")
  })

  it("the condition ends with the next step, as a command for the server", () => {
    const problem = {
      code: "422",
      detail: "it is so",
      hint: "Reload, then upgrade the server: POST /api/servers/:server/upgrade.",
      since: "2026-01-01T00:00:00.000Z"
    }
    assert.include(
      tableOfItems(servers, [{ ...serverExample, problem }], true),
      `: it is so. Reload, then upgrade the server: \`muster servers upgrade ${serverExample.id}\`.`
    )
  })
})
