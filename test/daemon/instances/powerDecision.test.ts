import { assert, describe, it } from "@effect/vitest"
import { powerDecision } from "../../../src/daemon/instances/powerDecision.ts"
import { type InstanceState, newInstanceState } from "../../../src/daemon/state/InstanceState.ts"
import { specOf } from "../support.ts"

/** A server that is restarted with a definition that needs an installation. */
const upgrading: InstanceState = {
  ...newInstanceState(specOf()),
  install: { phase: "installing" },
  work: "upgrade",
  start_again: true
}

describe("spec 3.9: a server that is started once it has its new definition", () => {
  it("stop and kill cancel that start", () => {
    for (const status of ["offline", "installing"] as const) {
      for (const action of ["stop", "kill"] as const) {
        assert.deepStrictEqual(powerDecision({ ...upgrading, status }, action), { do: "cancel" })
      }
    }
  })

  it("without that start, they have no effect", () => {
    const state = { ...upgrading, start_again: false }
    assert.deepStrictEqual(powerDecision(state, "stop"), { do: "nothing" })
  })
})

describe("spec 3.9: an action during an installation, reinstallation or reset", () => {
  it("start and restart happen afterwards", () => {
    const state = newInstanceState(specOf())
    const resetting = { ...state, install: { phase: "ready" }, work: "reset", status: "installing" } as const
    const intent = { type: "reset", deadline: 0, asked_at: 0 } as const
    for (const action of ["start", "restart"] as const) {
      const states: ReadonlyArray<InstanceState> = [
        { ...state, work: "install" },
        { ...resetting, work: "reinstall" },
        resetting,
        { ...resetting, status: "offline" },
        { ...resetting, work: "none", status: "stopping", intent }
      ]
      for (const each of states) assert.deepStrictEqual(powerDecision(each, action), { do: "defer" })
    }
  })
})
