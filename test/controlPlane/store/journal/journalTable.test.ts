import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import type { Change } from "../../../../src/contract/domain/Journal.ts"
import {
  changeRow,
  checkChange,
  decodeChange
} from "../../../../src/controlPlane/store/journal/journalTable.ts"

/** Each change with its columns: topic, server_id, payload. */
const rows: ReadonlyArray<readonly [Change, readonly [string, string, string]]> = [
  [{ topic: "status", server_id: ServerId.make("s"), payload: "running" }, ["status", "s", '"running"']],
  [{ topic: "deleted", server_id: ServerId.make("s"), payload: null }, ["deleted", "s", "null"]],
  [
    { topic: "server:install", server_id: ServerId.make("s"), payload: { phase: "ready" } },
    ["server:install", "s", '{"phase":"ready"}']
  ],
  [
    { topic: "server:start-pending", server_id: ServerId.make("s"), payload: true },
    ["server:start-pending", "s", "true"]
  ],
  [
    { topic: "server:left", server_id: ServerId.make("s"), payload: NodeId.make("n") },
    ["server:left", "s", '"n"']
  ],
  [{ topic: "server:move", server_id: ServerId.make("s"), payload: null }, ["server:move", "s", "null"]],
  [
    { topic: "node:changed", node_id: NodeId.make("n"), kind: "lost" },
    ["node:changed", "", '{"node_id":"n","kind":"lost"}']
  ],
  [{ topic: "node:reach", node_id: NodeId.make("n") }, ["node:reach", "", '{"node_id":"n"}']],
  [{ topic: "node:evacuation", node_id: NodeId.make("n") }, ["node:evacuation", "", '{"node_id":"n"}']],
  [{ topic: "key:changed" }, ["key:changed", "", "{}"]],
  [{ topic: "rollout:changed", rollout_id: "r" }, ["rollout:changed", "", '{"rollout_id":"r"}']],
  [
    { topic: "definitions:reloaded", folder: "software", origin: "o" },
    ["definitions:reloaded", "", '{"folder":"software","origin":"o"}']
  ]
]

describe("design: the journal", () => {
  it.effect.each(rows)("a change of each subject has its row: %j", ([change, [topic, server_id, payload]]) =>
    Effect.gen(function* () {
      const row = changeRow(change)
      assert.deepStrictEqual(
        [row.topic, row.server_id, JSON.stringify(row.payload)],
        [topic, server_id, payload]
      )
      yield* checkChange(change)
      const stored = { topic, server_id, payload: JSON.parse(payload) }
      assert.deepStrictEqual(yield* decodeChange(stored), change)
    })
  )

  it.effect("a change that does not fit its topic is a defect", () =>
    Effect.gen(function* () {
      const wrong = { topic: "server:problem", server_id: "s", payload: { no: "problem" } }
      // Only a mistake in the program makes such a change.
      const exit = yield* Effect.exit(checkChange(wrong as unknown as Change))
      assert.isTrue(exit._tag === "Failure")
    })
  )
})
