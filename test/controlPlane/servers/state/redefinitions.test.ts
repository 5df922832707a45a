import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import type { ServerDefinition } from "../../../../src/contract/domain/ServerDefinition.ts"
import { pendingOf } from "../../../../src/controlPlane/servers/list/summary.ts"
import { definition } from "../../../support/samples.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const made = Effect.gen(function* () {
  const { start } = yield* makeHarness()
  const control = yield* start()
  const { id } = yield* control.servers.create(request())
  yield* control.becomes(id, "offline")
  yield* control.settled
  const define = (change: Partial<ServerDefinition>, more = {}) =>
    control.lifecycle.redefine(ServerId.make(id), () =>
      Effect.succeed({ definition: definition(change), ...more })
    )
  const record = Effect.map(control.records, ([found]) => found)
  return { control, id, define, record }
})

describe("spec 3.12: the record", () => {
  it.effect("a new definition, its overrides and what the server has so far are one write", () =>
    runHarness(
      Effect.gen(function* () {
        const { define, record } = yield* made
        const before = yield* record
        const overrides = { env: { MOTD: "new" } }
        yield* define({ env: { MOTD: "new" }, blueprint_id: "lobby" }, { overrides })
        const after = yield* record
        assert.strictEqual(after?.blueprint_id, "lobby")
        assert.deepStrictEqual(after?.definition.env, { MOTD: "new" })
        assert.deepStrictEqual(after?.overrides, overrides)
        assert.deepStrictEqual(after?.allocations, before?.allocations)
      })
    )
  )

  it.effect("the same definition changes nothing; a later one has a later time", () =>
    runHarness(
      Effect.gen(function* () {
        const { define, record } = yield* made
        yield* define({})
        assert.isUndefined((yield* record)?.redefinition)
        yield* define({ env: { A: "1" } })
        const first = (yield* record)?.redefinition?.defined_at ?? 0
        yield* define({ env: { A: "2" } })
        assert.isAbove((yield* record)?.redefinition?.defined_at ?? 0, first)
      })
    )
  )

  it.live(
    "spec 3.14: an offline server starts with it if its rule is `always`, unless a caller stopped it",
    () =>
      runHarness(
        Effect.gen(function* () {
          const { control, define, id } = yield* made
          yield* define({ run: "always" })
          yield* control.becomes(id, "running")
          yield* control.servers.power(id, "stop", 30)
          yield* control.becomes(id, "offline")
          yield* control.settled
          yield* define({ run: "always", env: { A: "1" } })
          yield* control.settled
          assert.isFalse((yield* control.records)[0]?.start_pending)
          assert.strictEqual(yield* control.servers.status(id), "offline")
        })
      )
  )

  it.effect("a server has what its node reports, also if there is a later definition by then", () =>
    runHarness(
      Effect.gen(function* () {
        const { control, define, id, record } = yield* made
        const report = Effect.fnUntraced(function* (uses: number | undefined) {
          const { last_sequence = 0, node_id = NodeId.make("") } = (yield* record) ?? {}
          const what = { type: "status", status: "running", transient: false } as const
          const sequence = last_sequence + 1
          const own = { server_id: ServerId.make(id), sequence, ...(uses === undefined ? {} : { uses }) }
          yield* control.lifecycle.reports(node_id, [{ ...what, ...own }])
        })
        const definedAt = Effect.map(record, (it) => it?.redefinition?.defined_at)
        const pending = Effect.map(record, (it) => (it === undefined ? undefined : pendingOf(it)))
        yield* define({ env: { A: "1" } })
        const first = yield* definedAt
        yield* define({})
        const second = yield* definedAt
        yield* define({ env: { A: "1" }, version: "2" })
        yield* report(first)
        assert.deepStrictEqual(yield* pending, ["version"])
        yield* define({ env: { A: "1" } })
        assert.deepStrictEqual(yield* pending, [])
        yield* report(second)
        assert.deepStrictEqual(yield* pending, ["env.A"])
        yield* report(first)
        assert.deepStrictEqual(yield* pending, ["env.A"])
        yield* report(yield* definedAt)
        assert.deepStrictEqual(yield* pending, [])
        assert.hasAllKeys((yield* record)?.redefinition, ["defined_at", "delivered"])
      })
    )
  )

  it.effect("more ports than the server has are refused; fewer are not", () =>
    runHarness(
      Effect.gen(function* () {
        const { define, record } = yield* made
        const refused = yield* Effect.flip(define({ ports: 2 }))
        assert.match(JSON.stringify(refused), /the definition has 2 ports, server .* has 1/)
        assert.isUndefined((yield* record)?.redefinition)
      })
    )
  )
})
