import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ControlPlaneUnavailable } from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { freePorts, portHeld } from "../../support/ports.ts"
import { harness, until } from "../support.ts"

const ip = "127.0.0.1"
const at = (port: number) => ({
  force_outgoing_ip: false,
  default: { ip, port },
  alias: "",
  mappings: { [ip]: [port] }
})

/** An installed server whose start was refused because the control plane did not answer; its port is free again. */
const asked = (failure: ControlPlaneUnavailable) =>
  Effect.gen(function* () {
    const made = yield* harness()
    const port = yield* freePorts(1)
    const id = yield* made.installed({ allocations: at(port) })
    made.notes.replacePorts = () => Effect.fail(failure)
    const refused = yield* Effect.gen(function* () {
      yield* portHeld(ip, port, "UDP")
      return yield* Effect.flip(made.daemon.power(id, "start", 30))
    }).pipe(Effect.scoped)
    assert.deepInclude(refused, { _tag: "DaemonRefused", status: 409 })
    return { ...made, id, port }
  })

describe("spec 2.5: a daemon that did not get the answer", () => {
  it.live("asks again before the next start, although the port is free: another server may have it", () =>
    Effect.gen(function* () {
      const { daemon, id, lastStatus, notes, port } = yield* asked(
        new ControlPlaneUnavailable({ detail: "no response" })
      )
      const refused = yield* Effect.flip(daemon.power(id, "start", 30))
      assert.strictEqual(
        refused._tag === "DaemonRefused" ? refused.detail : "",
        "the control plane must confirm the ports of the server first: no response"
      )
      const questions: Array<unknown> = []
      notes.replacePorts = (_, taken) => {
        questions.push(taken)
        return Effect.succeed(at(port))
      }
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
      assert.deepStrictEqual(questions, [[]])
    }).pipe(Effect.scoped)
  )

  it.live("does not ask if the control plane has refused: nothing has changed", () =>
    Effect.gen(function* () {
      const { daemon, id, lastStatus } = yield* asked(
        new ControlPlaneUnavailable({ detail: "no other port", refuses: "message" })
      )
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
    }).pipe(Effect.scoped)
  )
})
