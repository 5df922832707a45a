import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import type { RolloutRecord, RolloutServer } from "../../../../src/contract/domain/Rollout.ts"
import { RolloutRepo } from "../../../../src/controlPlane/store/repos/RolloutRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { definition } from "../../../support/samples.ts"
import { databases, freshStore } from "../support/database.ts"

const rollout = (n: number, state: RolloutRecord["state"] = "running"): RolloutRecord => ({
  id: `r${n}`,
  state,
  settings: { max_parallel: 2, restart: "now", on_failure: "pause" },
  total: 1,
  done: 0,
  rolled_back: 0,
  canary_left: 0,
  rolling_back: false,
  reason: null,
  created_at: new Date(Date.UTC(2026, 0, 1) + n * 1000).toISOString(),
  finished_at: null,
  created_by: null,
  origin: { selector: { blueprint_id: "kept" }, revisions: [] }
})

const server = (rollout_id: string, position: number): RolloutServer => ({
  rollout_id,
  server_id: ServerId.make(`s${position}`),
  position,
  phase: "queued",
  attempt: 0,
  target: "new",
  earlier: "old",
  was_up: null,
  stopped: false,
  notified_at: null,
  restarted_at: null,
  crash_before: null,
  reason: null
})

const definitions = [
  ["new", definition({ version: "2" })],
  ["old", definition({ version: "1" })]
] as const

const insert = Effect.fnUntraced(function* (of: RolloutRecord, servers: ReadonlyArray<RolloutServer>) {
  const repo = yield* RolloutRepo
  const { write } = yield* Store
  const whole = Effect.gen(function* () {
    yield* repo.addPart({ rollout_id: of.id, servers, definitions })
    return yield* repo.insert(of, { servers: servers.length, definitions: definitions.length })
  })
  assert.isTrue(yield* write(whole))
})

describe.each(databases)("spec 3.13: the rows (%s)", (kind) => {
  it.effect(
    "servers begin in order; a step of an earlier attempt saves nothing; the end frees the servers",
    () =>
      Effect.gen(function* () {
        const repo = yield* RolloutRepo
        const { read, write } = yield* Store
        const servers = [0, 1, 2, 3].map((position) => server("r1", position))
        yield* insert(rollout(1), servers)
        assert.deepStrictEqual((yield* write(repo.begin("r1", 2))).toSorted(), [
          ServerId.make("s0"),
          ServerId.make("s1")
        ])
        const [first, second] = [server("r1", 0), server("r1", 1)]
        assert.isTrue(yield* write(repo.saveServer({ ...first, phase: "done", was_up: true })))
        assert.isTrue(yield* write(repo.saveServer({ ...second, phase: "failed", reason: "it crashed" })))
        assert.deepStrictEqual(yield* read(repo.counts("r1")), {
          queued: 2,
          changing: 0,
          waiting: 0,
          done: 1,
          failed: 1
        })
        yield* write(repo.turnBack("r1"))
        // Those that had not begun are no longer part of it; the failed one comes first.
        const back = yield* read(repo.server(second.server_id))
        assert.deepStrictEqual([back?.target, back?.earlier, back?.attempt], ["old", "new", 1])
        assert.deepStrictEqual(yield* write(repo.begin("r1", 1)), [second.server_id])
        assert.isFalse(yield* write(repo.saveServer({ ...second, phase: "done" })))
        const busy = yield* read(repo.busy(servers.map(({ server_id }) => server_id)))
        assert.deepStrictEqual(
          busy.map(({ server_id }) => server_id),
          [first.server_id, second.server_id]
        )
        const counts = yield* read(repo.counts("r1"))
        yield* write(repo.finish({ ...rollout(1, "aborted"), rolling_back: true }, counts))
        assert.deepStrictEqual(yield* read(repo.busy([first.server_id, second.server_id])), [])
        assert.deepStrictEqual((yield* read(repo.failures("r1"))).first, [
          { server_id: second.server_id, reason: "it crashed" }
        ])
      }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("the parts of a rollout have no effect until it is inserted, and are removed otherwise", () =>
    Effect.gen(function* () {
      const repo = yield* RolloutRepo
      const { read, write } = yield* Store
      const [first, second] = [server("r1", 0), server("r2", 0)]
      const ids = [first.server_id]
      yield* write(repo.addPart({ rollout_id: "r1", servers: [first], definitions }))
      yield* write(repo.addPart({ rollout_id: "r2", servers: [second], definitions: [] }))
      assert.deepStrictEqual(yield* read(repo.busy(ids)), [])
      assert.isUndefined(yield* read(repo.server(first.server_id)))
      assert.isFalse(yield* write(repo.insert(rollout(1), { servers: 2, definitions: 2 })))
      assert.isTrue(yield* write(repo.insert(rollout(1), { servers: 1, definitions: 2 })))
      yield* write(repo.removeParts("r1"))
      yield* write(repo.removeParts())
      assert.deepStrictEqual(
        (yield* read(repo.busy(ids))).map(({ rollout_id }) => rollout_id),
        ["r1"]
      )
      assert.isDefined(yield* read(repo.definition("r1", "new")))
      assert.isFalse(yield* write(repo.insert(rollout(2), { servers: 1, definitions: 0 })), "removed")
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("the newest 100 rollouts that are over are kept, and all that are not", () =>
    Effect.gen(function* () {
      const repo = yield* RolloutRepo
      const { read } = yield* Store
      yield* insert(rollout(0), [server("r0", 0)])
      for (let n = 1; n <= 103; n++) {
        yield* insert(rollout(n, "done"), [])
      }
      const list = (yield* read(repo.list({ limit: 200 }))) ?? []
      assert.deepStrictEqual(
        [list.length, list[0]?.id, list.at(-2)?.id, list.at(-1)?.id],
        [101, "r103", "r4", "r0"]
      )
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})
