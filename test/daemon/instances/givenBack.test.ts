import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { harness, newId, specOf } from "../support.ts"

const GAP = 1_000

describe("spec 3.19: a deleted server that its node gives back", () => {
  it.live("is stopped if it is up since before its deletion, and left alone if it was started since", () =>
    Effect.gen(function* () {
      const { daemon, installed } = yield* harness({})
      const id = yield* installed({ id: newId() })
      const statusIs = (wanted: string) => eventually(daemon.find(id), ({ status }) => status === wanted)
      const started = Effect.andThen(daemon.power(id, "start", 30), statusIs("running"))
      yield* started
      const restored = { ...specOf({ id }), last_sequence: GAP, restore: true } as const
      assert.strictEqual((yield* daemon.create(restored)).status, "offline")
      yield* started
      assert.strictEqual((yield* daemon.create(restored)).status, "running")
      // An undelete with other ports that began at the same time, and one that began later.
      const moved = { ...restored, allocations: { ...restored.allocations, alias: "other" } }
      assert.strictEqual((yield* daemon.create(moved)).status, "running")
      assert.strictEqual((yield* daemon.create({ ...moved, last_sequence: GAP + 1 })).status, "offline")
    })
  )
})
