import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { until } from "../../support/eventually.ts"
import { makeHarness, request, runHarness } from "./support/harness.ts"

const mounted = { dry_run: false, blueprint_id: "mounted" }

const made = Effect.gen(function* () {
  const { daemon, start } = yield* makeHarness()
  const control = yield* start()
  const { id } = yield* control.servers.create(request())
  yield* control.becomes(id, "offline")
  yield* control.settled
  daemon.calls.length = 0
  const record = Effect.map(control.records, ([found]) => found)
  return { control, daemon, id, record }
})

describe("spec 3.12: the node", () => {
  it.live("a lost call is repeated until the node has the definition", () =>
    runHarness(
      Effect.gen(function* () {
        const { control, daemon, id, record } = yield* made
        daemon.fault("create", "request-lost", "answer-lost", "request-lost")
        yield* control.servers.upgrade(id, mounted)
        yield* until(
          "the node has accepted it",
          Effect.map(record, (it) => it?.redefinition?.delivered === true)
        )
        assert.strictEqual(daemon.instances.get(ServerId.make(id))?.spec.definition.blueprint_id, "mounted")
      })
    )
  )

  it.live("a start after the change reaches the node after the definition", () =>
    runHarness(
      Effect.gen(function* () {
        const { control, daemon, id } = yield* made
        daemon.fault("create", "request-lost")
        yield* control.servers.upgrade(id, mounted)
        yield* control.servers.power(id, "start")
        assert.strictEqual(daemon.instances.get(ServerId.make(id))?.spec.definition.blueprint_id, "mounted")
        yield* control.becomes(id, "running")
        const calls = daemon.calls.map((call) => call.split(" ")[0])
        assert.isBelow(calls.lastIndexOf("create"), calls.indexOf("power"))
      })
    )
  )
})
