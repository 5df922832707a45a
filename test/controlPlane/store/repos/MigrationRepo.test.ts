import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { MigrationRepo } from "../../../../src/controlPlane/store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { plain } from "../../../support/ids.ts"
import { server } from "../../../support/samples.ts"
import { databases, freshStore } from "../support/database.ts"

describe.each(databases)("spec 9.2: the servers of a node in the records (%s)", (kind) => {
  it.effect(
    "a server is placed here, arrives from here, is elsewhere, is to be deleted, or is unknown; also for many servers",
    () =>
      Effect.gen(function* () {
        const store = yield* Store
        const servers = yield* ServerRepo
        const moves = plain(yield* MigrationRepo)
        yield* store.write(
          Effect.gen(function* () {
            for (const [index, node_id] of ["here", "there", "there", "there"].entries()) {
              yield* servers.insert(server(`srv_${index}`, [25_565 + index], node_id))
            }
            yield* moves.save({
              server_id: "srv_1",
              from_node: "here",
              phase: "arriving",
              arrival: "a",
              was_up: true,
              reason: null,
              origin: null
            })
            for (const id of ["srv_0", "srv_3", "srv_gone"]) {
              yield* moves.addDeletion({ server_id: id, node_id: "here" })
            }
            yield* moves.addDeletion({ server_id: "srv_else", node_id: "there" })
          })
        )
        const others = Array.from({ length: 2_000 }, (_, n) => `srv_other_${n}`)
        const ids = ["srv_0", "srv_1", "srv_2", ...others, "srv_3", "srv_gone", "srv_else"]
        const standings = yield* store.read(moves.standings("here", ids))
        assert.deepStrictEqual(
          [...standings].toSorted(([one], [other]) => (one < other ? -1 : 1)),
          [
            [ServerId.make("srv_0"), { node_id: NodeId.make("here"), kept: true, owed: true }],
            [ServerId.make("srv_1"), { node_id: NodeId.make("there"), kept: true, owed: false }],
            [ServerId.make("srv_2"), { node_id: NodeId.make("there"), kept: false, owed: false }],
            [ServerId.make("srv_3"), { node_id: NodeId.make("there"), kept: false, owed: true }],
            [ServerId.make("srv_gone"), { node_id: null, kept: false, owed: true }]
          ]
        )
        assert.deepStrictEqual(yield* store.read(moves.standings("here", [])), new Map())
        const left = yield* store.read(moves.deletionsOn("here"))
        assert.deepStrictEqual(left.map(({ server_id }) => server_id).toSorted(), [
          "srv_0",
          "srv_3",
          "srv_gone"
        ])
      }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})
