import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, Layer, Path, Redacted } from "effect"
import { ADMIN_KEY_FILE } from "../../../src/contract/domain/Key.ts"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { ensureFirstKey } from "../../../src/controlPlane/keys/firstKey.ts"
import { formatKey, isWellFormed, KEY_BYTES } from "../../../src/controlPlane/keys/keyFormat.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { newDatabase } from "../store/support/database.ts"

/** Runs `test` in a data folder; `start` is one start of the service in that folder with the database of that name. */
const inFolder = <A, E>(
  test: (folder: {
    readonly dataDir: string
    readonly file: string
    readonly fs: FileSystem.FileSystem
    readonly start: <B, F, R>(
      database: string,
      run: Effect.Effect<B, F, R>
    ) => Effect.Effect<B, unknown, Exclude<R, Layer.Success<ReturnType<typeof services>>>>
  }) => Effect.Effect<A, E, NodeServices.NodeServices>
) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const dataDir = path.dirname(yield* newDatabase)
    return yield* test({
      dataDir,
      file: path.join(dataDir, ADMIN_KEY_FILE),
      fs,
      start: (database, run) => Effect.provide(run, services(path.join(dataDir, database)))
    })
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

const services = (filename: string) => ApiKeys.layer().pipe(Layer.provideMerge(layerSqlite({ filename })))

const verify = (key: string) => Effect.flatMap(ApiKeys, (keys) => keys.verify(key))
const list = Effect.flatMap(ApiKeys, (keys) => keys.list)

describe("spec 6.1: the first key", () => {
  it.effect(
    "the key is created, readable by the owner only, and accepted; the next start changes nothing",
    () =>
      inFolder(({ dataDir, file, fs, start }) =>
        Effect.gen(function* () {
          const made = yield* start("muster.db", ensureFirstKey({ dataDir }))
          assert.deepStrictEqual(made, {
            _tag: "Made",
            path: file,
            message: `there was no API key for administration: made one, it is in ${file}`
          })
          assert.strictEqual((yield* fs.stat(file)).mode & 0o777, 0o600)
          const text = yield* fs.readFileString(file)
          assert.isTrue(isWellFormed(text.trim()))
          assert.strictEqual((yield* start("muster.db", verify(text.trim()))).scope, "AppAdmin")
          const again = yield* start("muster.db", ensureFirstKey({ dataDir }))
          assert.deepStrictEqual(again, { _tag: "NotNeeded", path: file })
          assert.strictEqual(yield* fs.readFileString(file), text)
          assert.strictEqual((yield* start("muster.db", list)).length, 1)
          const files = yield* fs.readDirectory(dataDir)
          assert.deepStrictEqual(files.toSorted(), ["admin.key", "muster.db"])
        })
      )
  )

  it.effect("the key is created if no existing key has scope AppAdmin", () =>
    inFolder(({ dataDir, start }) =>
      Effect.gen(function* () {
        yield* start(
          "muster.db",
          Effect.flatMap(ApiKeys, (keys) => keys.create({ name: "alpha", scope: "Node" }))
        )
        const { _tag } = yield* start("muster.db", ensureFirstKey({ dataDir }))
        assert.strictEqual(_tag, "Made")
        const scopes = (yield* start("muster.db", list)).map(({ scope }) => scope)
        assert.deepStrictEqual(scopes.toSorted(), ["AppAdmin", "Node"])
      })
    )
  )

  it.effect("no key is created if the environment sets one", () =>
    inFolder(({ dataDir, file, fs, start }) =>
      Effect.gen(function* () {
        const result = yield* start(
          "muster.db",
          ensureFirstKey({ dataDir, adminKey: Redacted.make("outside") })
        )
        assert.deepStrictEqual(result, { _tag: "NotNeeded" })
        assert.isFalse(yield* fs.exists(file))
      })
    )
  )

  it.effect("no key is created if the store has an AppAdmin key, even a revoked one", () =>
    inFolder(({ dataDir, file, fs, start }) =>
      Effect.gen(function* () {
        const result = yield* start(
          "muster.db",
          Effect.gen(function* () {
            const keys = yield* ApiKeys
            const { record } = yield* keys.create({ name: "ci", scope: "AppAdmin" })
            yield* keys.revoke(record.id)
            return yield* ensureFirstKey({ dataDir, adminKey: Redacted.make("") })
          })
        )
        assert.deepStrictEqual(result, { _tag: "NotNeeded" })
        assert.isFalse(yield* fs.exists(file))
      })
    )
  )

  it.effect("a key file from before a crash or a new database is adopted", () =>
    inFolder(({ dataDir, file, fs, start }) =>
      Effect.gen(function* () {
        const key = formatKey(new Uint8Array(KEY_BYTES).fill(42))
        yield* fs.writeFileString(file, `${key}\n`)
        const adopted = yield* start("new.db", ensureFirstKey({ dataDir }))
        assert.strictEqual(adopted._tag, "Adopted")
        assert.strictEqual((yield* start("new.db", verify(key))).scope, "AppAdmin")
        assert.strictEqual(yield* fs.readFileString(file), `${key}\n`)
        assert.deepStrictEqual(yield* start("new.db", ensureFirstKey({ dataDir })), {
          _tag: "NotNeeded",
          path: file
        })
      })
    )
  )

  it.effect("a file without a key is an error and stays unchanged; no key is created", () =>
    inFolder(({ dataDir, file, fs, start }) =>
      Effect.gen(function* () {
        yield* fs.writeFileString(file, "hunter2")
        const error = yield* start("muster.db", Effect.flip(ensureFirstKey({ dataDir })))
        assert.strictEqual(error._tag, "FirstKeyError")
        assert.include(error.message, `${file} has no API key`)
        assert.strictEqual(yield* fs.readFileString(file), "hunter2")
        assert.deepStrictEqual(yield* start("muster.db", list), [])
      })
    )
  )

  it.effect("a folder that cannot be written is an error; no key is created", () =>
    inFolder(({ dataDir, start }) =>
      Effect.gen(function* () {
        const error = yield* start(
          "muster.db",
          Effect.flip(ensureFirstKey({ dataDir: `${dataDir}/missing` }))
        )
        assert.strictEqual(error._tag, "FirstKeyError")
        assert.include(error.message, "cannot be written")
        assert.deepStrictEqual(yield* start("muster.db", list), [])
      })
    )
  )
})
