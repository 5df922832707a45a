import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../src/domain/Id.ts"
import type { ServerDefinition } from "../../../src/domain/ServerDefinition.ts"
import { definition } from "../../support/samples.ts"
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

describe("life.md, Changing: the record", () => {
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
