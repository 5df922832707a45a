import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { BackupFigures, BackupRecord } from "../../../../src/contract/domain/Backup.ts"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { isExclusive, OperationKind } from "../../../../src/contract/domain/Operation.ts"
import { BackupRepo } from "../../../../src/controlPlane/store/repos/BackupRepo.ts"
import { newOperation, OperationRepo } from "../../../../src/controlPlane/store/repos/OperationRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { databases, freshStore } from "../support/database.ts"

const backup = (id: string): BackupRecord => ({
  ...{ id, server_id: ServerId.make("s1"), server_name: null, blueprint_id: "kept", name: null },
  ...{
    labels: {},
    server_labels: {},
    overrides: {},
    state: "queued",
    target: "node",
    node_id: NodeId.make("n1")
  },
  ...{ operation_id: `of-${id}`, figures: null, pinned: false, expires_at: null, created_by: null },
  ...{
    created_at: "2026-01-01T00:00:00.000Z",
    finished_at: null,
    reason: null,
    drill: null,
    verified: null,
    schedule: null
  }
})

const figures: BackupFigures = {
  ...{ files: 1, changed_files: 0, size_bytes: 1, stored_bytes: 1, consistency: "stopped" },
  ...{ sha256: "0".repeat(64), manifest_sha256: "0".repeat(64) }
}
const end = { finished_at: "2026-01-01T00:00:01.000Z", reason: null }

describe.each(databases)("spec 12.4: a backup that ends while it is cancelled (%s)", (kind) => {
  it.effect("is finished and keeps its files, or loses them and is not finished", () =>
    Effect.gen(function* () {
      const repo = yield* BackupRepo
      const { read, write } = yield* Store
      for (const id of ["finished", "cancelled"]) {
        yield* write(repo.insert(backup(id), undefined))
        yield* write(repo.underway(id, "copying", "n1", undefined))
      }
      yield* write(repo.finish("finished", figures, end, undefined))
      assert.isUndefined(yield* write(repo.unfinish("finished")))
      assert.strictEqual((yield* read(repo.find("finished")))?.state, "done")
      assert.isDefined(yield* write(repo.unfinish("cancelled")))
      yield* write(repo.finish("cancelled", figures, end, undefined))
      assert.strictEqual((yield* read(repo.find("cancelled")))?.state, "queued")
      // The caller of a cancellation that was interrupted repeats it.
      assert.isDefined(yield* write(repo.unfinish("cancelled")))
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})

describe.each(databases)("spec 12.1: a backup that an unfinished operation reads (%s)", (kind) => {
  it.effect("neither expires nor counts for `keep` until the operation has ended", () =>
    Effect.gen(function* () {
      const repo = yield* BackupRepo
      const operations = yield* OperationRepo
      const { read, write } = yield* Store
      const { created_at, server_id } = backup("read")
      const good = { state: "done", expires_at: created_at } as const
      const idsOf = (found: ReadonlyArray<BackupRecord> | undefined = []) => found.map(({ id }) => id)
      for (const id of ["other", "read"]) yield* write(repo.insert({ ...backup(id), ...good }, undefined))
      for (const kind of OperationKind.literals.filter(isExclusive)) {
        const request = { backup_id: "read" }
        const begun = newOperation({ kind, server_id, request, created_by: null, created_at })
        yield* write(operations.insert(begun, undefined))
        const isRead = kind !== "backup.create"
        const free = isRead ? ["other"] : ["other", "read"]
        assert.deepStrictEqual(idsOf(yield* read(repo.due(created_at, 10))), free, kind)
        assert.deepStrictEqual(idsOf(yield* read(repo.unreadOf(server_id))).toSorted(), free)
        assert.deepStrictEqual(
          yield* read(repo.readerOf("read")),
          isRead ? { id: begun.id, kind } : undefined
        )
        assert.isUndefined(yield* read(repo.readerOf("other")))
        yield* write(operations.end(begun.id, { ...end, state: "failed" }, undefined))
      }
      assert.deepStrictEqual(idsOf(yield* read(repo.due(created_at, 10))), ["other", "read"])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})

describe.each(databases)("spec 12.1: a backup whose last verification has found damage (%s)", (kind) => {
  it.effect("is not good until a later one finds it whole", () =>
    Effect.gen(function* () {
      const repo = yield* BackupRepo
      const { read, write } = yield* Store
      const { created_at: at, server_id } = backup("old")
      for (const [id, created_at] of [
        ["old", at],
        ["new", end.finished_at]
      ] as const)
        yield* write(repo.insert({ ...backup(id), state: "done", created_at, figures }, undefined))
      const good = Effect.gen(function* () {
        const [totals] = (yield* read(repo.byBlueprint)) ?? []
        return [(yield* read(repo.unreadOf(server_id)))?.length, totals?.newest, totals?.stored_bytes]
      })
      assert.deepStrictEqual(yield* good, [2, end.finished_at, 2])
      yield* write(repo.verified("new", { at, ok: false, reason: "part-00001 is damaged" }, undefined))
      assert.deepStrictEqual(yield* good, [1, at, 1])
      yield* write(repo.verified("new", { at, ok: true }, undefined))
      assert.deepStrictEqual(yield* good, [2, end.finished_at, 2])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})
