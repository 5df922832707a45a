import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { serverOf } from "../../../src/contract/domain/Journal.ts"
import { Journal } from "../../../src/controlPlane/store/journal/Journal.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { linesOf, startChild } from "./support/children.ts"
import { newDatabase, query } from "./support/database.ts"

describe("spec 9.6: control plane killed at any moment", () => {
  it.live(
    "after a restart, every acknowledged write is there, and any other is there completely or not at all",
    () =>
      Effect.gen(function* () {
        const filename = yield* newDatabase
        for (const moment of [1, 40, 333]) {
          let acknowledgedNow = 0
          const child = yield* startChild("write-forever.ts", filename)
          const acknowledged = yield* Stream.runCollect(
            Stream.tap(linesOf(child), () => {
              acknowledgedNow += 1
              return acknowledgedNow === moment ? child.kill({ killSignal: "SIGKILL" }) : Effect.void
            })
          )
          yield* Effect.gen(function* () {
            const store = yield* Store
            const journal = yield* Journal
            const repo = yield* ServerRepo
            const records = yield* store.read(repo.all)
            const ids = new Set<string | undefined>(records.map((record) => record.id))
            assert.isAtLeast(ids.size, moment)
            assert.deepStrictEqual(
              acknowledged.filter((id) => !ids.has(id)),
              []
            )
            const entries = yield* Stream.runCollect(journal.after(0))
            assert.deepStrictEqual(
              entries.map((entry) => entry.cursor),
              entries.map((_, index) => index + 1)
            )
            const published = entries.map((entry) => serverOf(entry.change))
            assert.deepStrictEqual(new Set(published.slice(-ids.size)), ids)
            const holders = yield* query("SELECT server_id FROM ports")
            assert.deepStrictEqual(new Set(holders.map((row) => row.server_id)), ids)
            // The next round uses the same ids.
            yield* store.write(Effect.forEach(records, (record) => repo.remove(record.id)))
          }).pipe(Effect.provide(layerSqlite({ filename })))
        }
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
