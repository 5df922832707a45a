import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { availableCapacity } from "../../../src/controlPlane/servers/insertion.ts"
import { CapacityRepo } from "../../../src/controlPlane/store/repos/CapacityRepo.ts"
import { NodeRepo } from "../../../src/controlPlane/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { node, server } from "../../support/samples.ts"
import { freshStore } from "../store/support/database.ts"

describe("design: creations that share a write", () => {
  it.effect("a creation reduces the capacity for the next one exactly as its rows do", () =>
    Effect.gen(function* () {
      const nodes = yield* NodeRepo
      const rooms = yield* CapacityRepo
      const servers = yield* ServerRepo
      const store = yield* Store
      yield* store.write(Effect.andThen(nodes.save(node("node-1")), nodes.save(node("node-2"))))
      yield* store.write(servers.insert(server("srv_0", [1_000])))
      const other = { ...server("srv_2", [1_002]), blueprint_id: "lobby" }
      const records = [server("srv_1", [1_001]), other, server("srv_3", [1_003], "node-2")]
      const gone = server("srv_4", [1_004], "gone")
      yield* store.write(
        Effect.gen(function* () {
          const tally = yield* availableCapacity(
            rooms,
            [...records, gone].map((record) => ({ record }))
          )
          assert.isUndefined(tally.of(gone))
          for (const record of records) {
            const { blueprint_id, node_id } = record
            assert.deepStrictEqual(tally.of(record), yield* rooms.of(node_id, blueprint_id))
            tally.take(record)
            assert.deepStrictEqual(yield* servers.insertAll([record]), ["inserted"])
            assert.deepStrictEqual(tally.of(record), yield* rooms.of(node_id, blueprint_id))
          }
        })
      )
    }).pipe(Effect.provide(freshStore()), Effect.provide(NodeServices.layer))
  )
})
