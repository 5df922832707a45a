import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Accesses } from "../../../src/daemon/instances/Accesses.ts"

describe("spec 12.4: a task that has the files of a server for itself", () => {
  it.effect("keeps them from another one, as of an operation that ended without its node", () =>
    Effect.gen(function* () {
      const accesses = new Accesses()
      yield* accesses.claim("operation one (backup.restore)")
      const { detail, status } = yield* Effect.flip(accesses.claim("operation two (backup.create)"))
      assert.deepStrictEqual([status, detail], [409, "operation one (backup.restore) runs on the server"])
      assert.strictEqual(accesses.exclusive, "operation one (backup.restore)")
    })
  )
})
