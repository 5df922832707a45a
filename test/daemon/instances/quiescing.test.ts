import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { quiesce } from "../../../src/daemon/instances/quiescing.ts"
import type { Serving } from "../../../src/daemon/instances/serving.ts"
import type { InstanceState } from "../../../src/daemon/state/InstanceState.ts"
import { specOf } from "../support.ts"

/** A running server whose engine freezes its processes, or refuses to. */
const server = (freezes: boolean) => {
  const calls: Array<string> = []
  const call = <A>(name: string, value: A) =>
    Effect.sync(() => {
      calls.push(name)
      return value
    })
  let state = { spec: specOf(), status: "running", intent: null, run: { token: "t" } }
  const serving = {
    file: {
      get: () => state,
      update: (change: (state: InstanceState) => InstanceState) =>
        Effect.sync(() => {
          // the fields that a pause reads and changes
          state = change(state as unknown as InstanceState) as unknown as typeof state
        })
    },
    live: { token: "t", run: { pause: call("pause", freezes), resume: call("resume", undefined) } }
  }
  // the parts of a serving that a pause uses
  return { serving: serving as unknown as Serving, calls, state: () => state }
}

describe("spec 12.10: pause", () => {
  it.effect("a server whose engine refuses to freeze it is not held, and is not frozen later", () =>
    Effect.gen(function* () {
      const refusing = server(false)
      yield* quiesce(refusing.serving, { by: "pause" })
      assert.notProperty(refusing.state(), "quiesced")
      assert.deepStrictEqual(refusing.calls, ["pause", "resume"])
      const freezing = server(true)
      yield* quiesce(freezing.serving, { by: "pause" })
      assert.deepNestedInclude(freezing.state(), { quiesced: { by: "pause", token: "t", after: [] } })
      assert.deepStrictEqual(freezing.calls, ["pause"])
    })
  )
})
