import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { TestClock } from "effect/testing"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import type { OperationRecord } from "../../../../src/contract/domain/Operation.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { OperationRepo } from "../../../../src/controlPlane/store/repos/OperationRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { eventually } from "../../../support/eventually.ts"
import { databases, freshStore } from "../support/database.ts"

const timeOf = (second: number) => new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString()

const operation = (second: number, change: Partial<OperationRecord> = {}): OperationRecord => ({
  id: `o${second}`,
  kind: "files.change",
  server_id: ServerId.make("s1"),
  state: "queued",
  request: { changes: [] },
  progress: null,
  reason: null,
  cancelling: null,
  created_by: "k1",
  created_at: timeOf(second),
  finished_at: null,
  ...change
})

const facts = { blueprint_id: "survival" }

const insert = Effect.fnUntraced(function* (...records: ReadonlyArray<OperationRecord>) {
  const repo = yield* OperationRepo
  const { write } = yield* Store
  yield* write(Effect.forEach(records, (record) => repo.insert(record, facts), { discard: true }))
})

const states = Effect.gen(function* () {
  const journal = yield* Journal
  const entries = yield* Stream.runCollect(journal.after(0))
  return entries.flatMap(({ change }) =>
    change.topic === "server:operation" ? [change.payload.operation.state] : []
  )
})

describe.each(databases)("spec 11.1: the rows of operations (%s)", (kind) => {
  it.effect("an operation ends once, without its request; each change of its state is a journal entry", () =>
    Effect.gen(function* () {
      const repo = yield* OperationRepo
      const { read, write } = yield* Store
      yield* insert(operation(1))
      assert.isUndefined(yield* write(repo.askToCancel("o1", "a caller", facts)))
      assert.strictEqual((yield* write(repo.run("o1", facts)))?.state, "running")
      assert.isUndefined(yield* write(repo.run("o1", facts)))
      assert.isTrue(yield* write(repo.saveProgress("o1", { done: 1, total: 2, unit: "files" })))
      assert.strictEqual((yield* write(repo.askToCancel("o1", "a caller", facts)))?.cancelling, "a caller")
      assert.isUndefined(yield* write(repo.askToCancel("o1", "another", facts)))
      const end = { state: "cancelled", reason: "a caller", finished_at: timeOf(9) } as const
      yield* write(repo.end("o1", end, facts))
      assert.isUndefined(yield* write(repo.end("o1", { ...end, state: "done" }, facts)))
      assert.isFalse(yield* write(repo.saveProgress("o1", { done: 2, total: 2, unit: "files" })))
      assert.deepStrictEqual(
        yield* read(repo.find("o1")),
        operation(1, {
          ...end,
          request: null,
          progress: { done: 1, total: 2, unit: "files" },
          cancelling: "a caller"
        })
      )
      assert.deepStrictEqual(yield* states, ["queued", "running", "running", "cancelled"])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("a list is newest first, in pages, and selects by server, kind, state and key", () =>
    Effect.gen(function* () {
      const repo = yield* OperationRepo
      const { read } = yield* Store
      yield* insert(
        operation(1),
        operation(2, { kind: "files.pack" }),
        operation(3, { server_id: ServerId.make("s2"), created_by: "k2" }),
        operation(4, { state: "done", finished_at: timeOf(5), request: null })
      )
      const ids = (page: Partial<Parameters<typeof repo.list>[0]>) =>
        Effect.map(read(repo.list({ limit: 10, ...page })), (found) => found?.map(({ id }) => id))
      assert.deepStrictEqual(yield* ids({}), ["o4", "o3", "o2", "o1"])
      assert.deepStrictEqual(yield* ids({ limit: 2, after: "o4" }), ["o3", "o2"])
      assert.deepStrictEqual(yield* ids({ server_id: "s1" }), ["o4", "o2", "o1"])
      assert.deepStrictEqual(yield* ids({ kind: "files.pack" }), ["o2"])
      assert.deepStrictEqual(yield* ids({ kinds: ["files.change"] }), ["o4", "o3", "o1"])
      assert.deepStrictEqual(yield* ids({ kinds: [] }), [])
      assert.deepStrictEqual(yield* ids({ state: "done" }), ["o4"])
      assert.deepStrictEqual(yield* ids({ created_by: "k2" }), ["o3"])
      assert.isUndefined(yield* ids({ after: "nothing" }))
      const counts = (key: string | null) => read(repo.counts(ServerId.make("s2"), key))
      assert.deepStrictEqual(yield* counts("k2"), { total: 3, own: 1, of_key: 1, by_key: 1 })
      assert.deepStrictEqual(yield* counts(null), { total: 3, own: 1, of_key: 0, by_key: 0 })
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("an operation is removed 24 h after its end; an unfinished one stays", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.UTC(2026, 0, 2))
      yield* Effect.gen(function* () {
        const repo = yield* OperationRepo
        const { read } = yield* Store
        const ended = { state: "done", request: null } as const
        yield* insert(
          operation(1),
          operation(2, { ...ended, finished_at: timeOf(59) }),
          operation(3, { ...ended, finished_at: timeOf(24 * 3600) })
        )
        const left = yield* eventually(
          Effect.tap(read(repo.list({ limit: 10 })), (found) =>
            found?.length === 2 ? Effect.void : TestClock.adjust("1 minute")
          ),
          (found) => found?.length === 2
        )
        assert.deepStrictEqual(
          left?.map(({ id }) => id),
          ["o3", "o1"]
        )
      }).pipe(Effect.provide(freshStore({}, kind)))
    }).pipe(Effect.provide(NodeServices.layer))
  )
})
