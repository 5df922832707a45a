import { statSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, FileSystem, Layer, Ref } from "effect"
import { backupDatabase } from "../../../../src/controlPlane/store/maintenance/copyDatabase.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { server } from "../../../support/samples.ts"
import { append, newDatabase, query, storeAt } from "../support/database.ts"

describe("muster db backup", () => {
  it.live("a backup during writes is a consistent database with mode 600", () =>
    Effect.gen(function* () {
      const file = yield* newDatabase
      const backup = join(dirname(file), "backup.db")
      const acknowledged = yield* Ref.make(0)
      const done = yield* Ref.make(false)
      const run = Effect.gen(function* () {
        const store = yield* Store
        const servers = yield* ServerRepo
        const writing = yield* Effect.forkChild(
          Effect.gen(function* () {
            for (let i = 0; !(yield* Ref.get(done)); i++) {
              const id = `srv_${String(i).padStart(5, "0")}`
              yield* store.write(Effect.andThen(servers.insert(server(id, [1 + i])), append(id)))
              yield* Ref.set(acknowledged, i + 1)
              yield* Effect.sleep("1 millis")
            }
          })
        )
        while ((yield* Ref.get(acknowledged)) < 20) yield* Effect.sleep("1 millis")
        const before = yield* Ref.get(acknowledged)
        yield* backupDatabase({ _tag: "Sqlite", filename: file }, backup)
        yield* Ref.set(done, true)
        yield* Fiber.join(writing)
        return before
      })
      const before = yield* Effect.provide(run, storeAt(`sqlite:${file}`))
      assert.strictEqual(statSync(backup).mode & 0o777, 0o600)
      const restored = yield* Effect.gen(function* () {
        const rows = yield* query("SELECT COUNT(*) AS count, MAX(cursor) AS newest FROM journal")
        const { all } = yield* ServerRepo
        const servers = yield* Effect.flatMap(Store, (store) => store.read(all))
        return { rows, servers: servers.length }
      }).pipe(Effect.provide(storeAt(`sqlite:${backup}`)))
      assert.isAtLeast(restored.servers, before)
      assert.deepStrictEqual(restored.rows, [{ count: restored.servers, newest: restored.servers }])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live(
    "an existing file is not overwritten; a file that cannot be written is an error and leaves nothing",
    () =>
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const filename = yield* newDatabase
        const from = { _tag: "Sqlite", filename } as const
        const folder = dirname(filename)
        const missing = yield* Effect.flip(backupDatabase(from, join(folder, "backup.db")))
        assert.match(missing.message, /^there is no database yet: /)
        yield* Effect.scoped(Layer.build(storeAt(`sqlite:${filename}`)))
        const present = join(folder, "present.db")
        writeFileSync(present, "mine")
        const refused = yield* Effect.flip(backupDatabase(from, present))
        assert.strictEqual(refused.message, `${present} exists already: name a new file`)
        assert.strictEqual(yield* fs.readFileString(present), "mine")
        const nowhere = yield* Effect.flip(backupDatabase(from, join(folder, "no", "backup.db")))
        assert.match(nowhere.message, /cannot be written/)
        assert.deepStrictEqual(
          (yield* fs.readDirectory(folder)).filter((name) => name.includes("partial")),
          []
        )
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
