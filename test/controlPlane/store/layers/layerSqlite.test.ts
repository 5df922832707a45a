import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, Layer, Path } from "effect"
import { SqlClient } from "effect/sql"
import { layerSqlite } from "../../../../src/controlPlane/store/layers/layerDatabase.ts"
import { schemaVersion } from "../../../../src/controlPlane/store/migrations/migrate.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { openDatabase } from "../../../../src/controlPlane/store/sqlite/database.ts"
import { append, newDatabase, query } from "../support/database.ts"

const open = (filename: string) => Effect.scoped(Layer.build(layerSqlite({ filename })))
const refusal = (filename: string) => Effect.flip(open(filename))

const withFile = <A, E>(
  test: (
    filename: string,
    fs: FileSystem.FileSystem
  ) => Effect.Effect<A, E, FileSystem.FileSystem | Path.Path>
) =>
  Effect.gen(function* () {
    return yield* test(yield* newDatabase, yield* FileSystem.FileSystem)
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

describe("design: the state is one SQLite file", () => {
  it.effect("an empty folder gets a database that survives a restart", () =>
    withFile((filename) =>
      Effect.gen(function* () {
        const tables = query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        const first = yield* Effect.provide(
          Effect.tap(tables, () => Effect.flatMap(Store, (store) => store.write(append("a")))),
          layerSqlite({ filename })
        )
        assert.includeMembers(
          first.map((row) => row.name),
          [
            "api_keys",
            "counters",
            "idempotency",
            "journal",
            "muster_migrations",
            "nodes",
            "ports",
            "removals",
            "servers"
          ]
        )
        const entries = query("SELECT server_id FROM journal")
        assert.deepStrictEqual(yield* Effect.provide(entries, layerSqlite({ filename })), [
          { server_id: "a" }
        ])
      })
    )
  )

  it.effect("the database and the files beside it have mode 600", () =>
    withFile((filename, fs) =>
      Effect.gen(function* () {
        const modes = Effect.gen(function* () {
          yield* Effect.flatMap(Store, (store) => store.write(append("a")))
          return yield* Effect.forEach(["", "-wal", "-shm"], (suffix) =>
            Effect.map(fs.stat(filename + suffix), (info) => info.mode & 0o777)
          )
        })
        assert.deepStrictEqual(yield* Effect.provide(modes, layerSqlite({ filename })), [0o600, 0o600, 0o600])
        yield* fs.chmod(filename, 0o644)
        assert.deepStrictEqual(yield* Effect.provide(modes, layerSqlite({ filename })), [0o600, 0o600, 0o600])
      })
    )
  )

  it.effect("every commit is durable: WAL with synchronous FULL, foreign keys on", () =>
    withFile((filename) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { write } = yield* Store
        const settings = yield* write(
          Effect.all([sql`PRAGMA journal_mode`, sql`PRAGMA synchronous`, sql`PRAGMA foreign_keys`])
        )
        assert.deepStrictEqual(
          settings.map((rows) => ({ ...rows[0] })),
          [{ journal_mode: "wal" }, { synchronous: 2 }, { foreign_keys: 1 }]
        )
      }).pipe(Effect.provide(layerSqlite({ filename })))
    )
  )

  it.effect("if two processes open a new file at once, both get the schema", () =>
    withFile((filename) =>
      Effect.forEach(Array.from({ length: 4 }), () => open(filename), { concurrency: "unbounded" })
    )
  )
})

describe("design: a store that cannot be opened gives the reason", () => {
  it.effect("a newer schema is refused and not changed", () =>
    withFile((filename) =>
      Effect.gen(function* () {
        yield* open(filename)
        const newer = schemaVersion + 2
        yield* Effect.scoped(
          openDatabase({
            filename,
            busyTimeoutMillis: 0,
            setup: `INSERT INTO muster_migrations (migration_id, name) VALUES (${newer}, 'later')`
          })
        )
        const error = yield* refusal(filename)
        assert.strictEqual(error.reason, "NewerSchema")
        assert.strictEqual(
          error.message,
          `the database has schema ${newer}, this version knows ${schemaVersion}: run a newer muster`
        )
      })
    )
  )

  it.effect("a file that is not a database of Muster is refused and not changed", () =>
    withFile((filename, fs) =>
      Effect.gen(function* () {
        const text = "a text that is no database. ".repeat(100)
        yield* fs.writeFileString(filename, text)
        const error = yield* refusal(filename)
        assert.strictEqual(error.reason, "NotADatabase")
        assert.include(error.message, filename)
        assert.strictEqual(yield* fs.readFileString(filename), text)
      })
    )
  )

  it.effect("a missing folder, a file as folder, and a folder as file are refused", () =>
    withFile((filename, fs) =>
      Effect.gen(function* () {
        const path = yield* Path.Path
        const folder = path.dirname(filename)
        yield* fs.writeFileString(path.join(folder, "file"), "")
        for (const wrong of [
          path.join(folder, "no", "muster.db"),
          path.join(folder, "file", "muster.db"),
          folder
        ]) {
          const error = yield* refusal(wrong)
          assert.strictEqual(error.reason, "CannotOpen")
          assert.include(error.message, wrong)
        }
      })
    )
  )

  it.live("a database that another process keeps locked is refused", () =>
    withFile((filename) =>
      Effect.gen(function* () {
        yield* openDatabase({
          filename,
          busyTimeoutMillis: 0,
          setup: "CREATE TABLE other (id INTEGER); BEGIN EXCLUSIVE"
        })
        const error = yield* refusal(filename)
        assert.strictEqual(error.reason, "Locked")
        assert.include(error.message, "locked by another process")
      }).pipe(Effect.scoped)
    )
  )
})
