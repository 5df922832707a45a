import { describe, expect, it } from "@effect/vitest"
import { Conflict, Unavailable } from "../../../../src/contract/domain/errors.ts"
import { INSTALL_FAILED_HINT } from "../../../../src/contract/domain/InstallState.ts"
import type { PowerAction } from "../../../../src/contract/domain/NodeMessages.ts"
import { ServerStatus } from "../../../../src/contract/domain/ServerStatus.ts"
import { decidePower } from "../../../../src/controlPlane/servers/powerActions.ts"
import { record } from "../../../support/samples.ts"

/** A server that is installing is not installed yet. */
const inStatus = (status: ServerStatus) =>
  record({ status, ...(status === "installing" ? { install: { phase: "installing" } } : {}) })

const outcome = (action: PowerAction, status: ServerStatus) => {
  const decision = decidePower(inStatus(status), action)
  return decision instanceof Conflict ? "409" : decision instanceof Unavailable ? "503" : decision
}

describe("spec 3.9: power", () => {
  const table: Record<PowerAction, Partial<Record<ServerStatus, string>>> = {
    // A node starts a server after its reset, and refuses the start of one that a stop ends.
    start: {
      installing: "defer",
      offline: "call",
      starting: "call",
      running: "call",
      stopping: "call",
      paused: "call"
    },
    stop: { starting: "call", running: "call", paused: "call", offline: "call", stopping: "call" },
    // A node refuses the restart of a server that a stop ends.
    restart: { starting: "call", running: "call", stopping: "call" },
    kill: { starting: "call", running: "call", stopping: "call", offline: "call" },
    pause: { running: "call", paused: "call" },
    unpause: { paused: "call", running: "call" }
  }
  const actions: ReadonlyArray<PowerAction> = ["start", "stop", "restart", "kill", "pause", "unpause"]

  it.each(actions)("%s follows the transition table in every status", (action) => {
    for (const status of ServerStatus.literals) {
      const expected = status === "unknown" ? "503" : (table[action][status] ?? "409")
      expect([status, outcome(action, status)]).toEqual([status, expected])
    }
  })

  it("a restart while a restart is underway is the node's to decide", () => {
    expect(decidePower({ ...record({ status: "offline" }), transient: true }, "restart")).toBe("call")
  })

  it.each(["stop", "kill"] as const)("%s cancels the start of a server that is installing", (action) => {
    expect(decidePower(record({ status: "installing", start_pending: true }), action)).toBe("cancel")
  })

  it.each(["start", "stop", "kill"] as const)("%s during a reset is the node's to decide", (action) => {
    expect(decidePower(record({ status: "installing" }), action)).toBe("call")
  })

  it("start after a failed installation is refused with the failure and a hint", () => {
    const failed = record({ install: { phase: "failed", failure_reason: "exit code 3" } })
    expect(decidePower(failed, "start")).toMatchObject({
      code: "409",
      detail: "install failed: exit code 3",
      hint: INSTALL_FAILED_HINT
    })
  })
})
