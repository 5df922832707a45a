import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { quiesce, release } from "../../../src/daemon/instances/quiescing.ts"
import type { Serving } from "../../../src/daemon/instances/serving.ts"
import type { InstanceState } from "../../../src/daemon/state/InstanceState.ts"
import { specOf } from "../support.ts"

/** A running server whose engine freezes its processes, or refuses to. */
const server = (freezes: boolean, given: Partial<InstanceState> = {}) => {
  const calls: Array<string> = []
  const call = <A>(name: string, value: A) =>
    Effect.sync(() => {
      calls.push(name)
      return value
    })
  let state = {
    ...{ spec: specOf(), status: "running", intent: null, run: { token: "t" }, sequence: 0, reports: [] },
    ...given
  }
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

describe("spec 12.10: stop", () => {
  it.effect("a server that waits for its turn is not started before its files were read", () =>
    Effect.gen(function* () {
      const { serving, state } = server(true, { status: "offline", run: null, waiting: true })
      yield* quiesce(serving, { by: "stop" })
      assert.notProperty(state(), "waiting")
      assert.deepNestedInclude(state(), { "quiesced.by": "stop", status: "offline" })
      yield* release(serving)
      assert.notProperty(state(), "quiesced")
      assert.deepInclude(state(), { status: "offline", waiting: true })
    })
  )
})
