import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer, Logger, Redacted, References } from "effect"
import type { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Unavailable } from "../../../src/contract/domain/errors.ts"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { formatKey, KEY_BYTES } from "../../../src/controlPlane/keys/keyFormat.ts"
import { Freshness } from "../../../src/controlPlane/store/journal/Journal.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { runChild } from "../store/support/children.ts"
import { freshStore, newDatabase, query } from "../store/support/database.ts"

const onFreshStore = <A, E>(
  test: Effect.Effect<A, E, ApiKeys | Store | SqlClient.SqlClient>,
  options: Parameters<typeof ApiKeys.layer>[0] = {}
) =>
  test.pipe(
    Effect.provide(ApiKeys.layer(options).pipe(Layer.provideMerge(freshStore()))),
    Effect.provide(NodeServices.layer)
  )

/** Collects every log line, with its annotations, as JSON. */
const logged = <A, E, R>(test: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const lines: Array<string> = []
    const logger = Logger.make(({ fiber, message }) => {
      lines.push(JSON.stringify([message, fiber.getRef(References.CurrentLogAnnotations)].flat()))
    })
    return test(lines).pipe(
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "All")
    )
  })

const never = formatKey(new Uint8Array(KEY_BYTES).fill(7))

describe("spec 6.1: keys", () => {
  it.effect("a created key is accepted with its scope; the store has only its hash", () =>
    onFreshStore(
      Effect.gen(function* () {
        const keys = yield* ApiKeys
        const { key, record } = yield* keys.create({ name: "ci", scope: "Node" })
        const principal = yield* keys.verify(Redacted.value(key))
        assert.deepStrictEqual(principal, { key_id: record.id, name: "ci", scope: "Node" })
        assert.deepStrictEqual(yield* keys.list, [record])
        assert.strictEqual(record.expires_at, null)
        const rows = JSON.stringify(yield* query("SELECT * FROM api_keys"))
        assert.notInclude(rows, Redacted.value(key))
        assert.notInclude(rows, Redacted.value(key).slice(4, 47))
      })
    )
  )

  it.effect("malformed, unknown, revoked and expired keys get the same answer; the log tells the cause", () =>
    onFreshStore(
      logged((lines) =>
        Effect.gen(function* () {
          const keys = yield* ApiKeys
          const revoked = yield* keys.create({ name: "revoked", scope: "AppAdmin" })
          const expired = yield* keys.create({
            name: "expired",
            scope: "AppAdmin",
            expires: Duration.seconds(30)
          })
          assert.strictEqual(expired.record.expires_at, "1970-01-01T00:00:30.000Z")
          yield* keys.verify(Redacted.value(revoked.key))
          yield* TestClock.adjust("29999 millis")
          yield* keys.verify(Redacted.value(expired.key))
          yield* TestClock.adjust("1 milli")
          yield* keys.revoke(revoked.record.id)
          const errors = yield* Effect.forEach(
            [
              `${never.slice(0, -1)}${never.endsWith("0") ? "1" : "0"}`,
              "",
              never,
              Redacted.value(revoked.key),
              Redacted.value(expired.key)
            ],
            (key) => Effect.flip(keys.verify(key))
          )
          assert.deepStrictEqual(
            new Set(errors.map((error) => `${error._tag}: ${error.detail}`)),
            new Set(["Unauthorized: the API key is not valid"])
          )
          assert.strictEqual(new Set(errors.map((error) => error.hint)).size, 1)
          assert.deepStrictEqual(
            lines.filter((line) => line.includes("refused")),
            [
              '["API key refused: malformed",{}]',
              '["API key refused: malformed",{}]',
              '["API key refused: unknown",{}]',
              JSON.stringify(["API key refused: revoked", { key_id: revoked.record.id, refused: 1 }]),
              JSON.stringify(["API key refused: expired", { key_id: expired.record.id, refused: 1 }])
            ]
          )
          for (const { key } of [revoked, expired]) assert.notInclude(lines.join(), Redacted.value(key))
        })
      )
    )
  )

  it.effect("repeated use of a revoked key is one log line a minute, with the count", () =>
    onFreshStore(
      logged((lines) =>
        Effect.gen(function* () {
          const keys = yield* ApiKeys
          const { key, record } = yield* keys.create({ name: "ci", scope: "Node" })
          yield* keys.revoke(record.id)
          const use = Effect.flip(keys.verify(Redacted.value(key)))
          const refusals = () => lines.filter((line) => line.includes("refused"))
          const line = (refused: number) =>
            JSON.stringify(["API key refused: revoked", { key_id: record.id, refused }])
          for (let i = 0; i < 100; i++) yield* use
          assert.deepStrictEqual(refusals(), [line(1)])
          yield* TestClock.adjust("1 minute")
          for (let i = 0; i < 100; i++) yield* use
          assert.deepStrictEqual(refusals(), [line(1), line(100)])
        })
      )
    )
  )

  it.effect("revoking a missing or revoked key fails", () =>
    onFreshStore(
      Effect.gen(function* () {
        const keys = yield* ApiKeys
        const { record } = yield* keys.create({ name: "ci", scope: "AppAdmin" })
        yield* keys.revoke(record.id)
        for (const id of [record.id, "key_unknown"]) {
          const error = yield* Effect.flip(keys.revoke(id))
          assert.strictEqual(error._tag, "NotFound")
          assert.include(error.detail, id)
        }
      })
    )
  )

  it.effect(
    "a key with an expiry beyond any date never expires; one with a duration of zero is expired at once",
    () =>
      onFreshStore(
        Effect.gen(function* () {
          const keys = yield* ApiKeys
          for (const expires of [Duration.infinity, Duration.days(1e12)]) {
            const { key, record } = yield* keys.create({ name: "long", scope: "Metrics", expires })
            assert.strictEqual(record.expires_at, null)
            yield* keys.verify(Redacted.value(key))
          }
          const { key } = yield* keys.create({ name: "short", scope: "Metrics", expires: Duration.zero })
          assert.strictEqual((yield* Effect.flip(keys.verify(Redacted.value(key))))._tag, "Unauthorized")
        })
      )
  )

  it.effect("the key of the environment is any text, with scope AppAdmin", () =>
    onFreshStore(
      Effect.gen(function* () {
        const keys = yield* ApiKeys
        assert.deepStrictEqual(yield* keys.verify("p\u00e4ss"), {
          key_id: "env",
          name: "APP_ADMIN_API_KEY",
          scope: "AppAdmin"
        })
        assert.strictEqual((yield* Effect.flip(keys.verify("p\u00e4s")))._tag, "Unauthorized")
        assert.deepStrictEqual(yield* keys.list, [])
      }),
      { adminKey: Redacted.make("p\u00e4ss") }
    )
  )

  it.effect("an empty key of the environment is accepted by no request", () =>
    onFreshStore(
      Effect.gen(function* () {
        const keys = yield* ApiKeys
        assert.strictEqual((yield* Effect.flip(keys.verify("")))._tag, "Unauthorized")
      }),
      { adminKey: Redacted.make("") }
    )
  )

  it.effect("while the database is away, cached keys are accepted and unknown ones are Unavailable", () =>
    Effect.gen(function* () {
      let away = false
      const failing = Layer.effect(
        Store,
        Effect.map(Store, (store) => ({
          ...store,
          read: <B, F>(read: Effect.Effect<B, F>) =>
            Effect.suspend(() => (away ? Effect.fail(Unavailable.store()) : store.read(read)))
        }))
      )
      // Simulates a lost change feed while the database is away.
      const uncertain = Layer.effect(
        Freshness,
        Effect.map(Freshness, ({ stamp }) => ({ stamp: () => (away ? undefined : stamp()) }))
      )
      yield* Effect.gen(function* () {
        const keys = yield* ApiKeys
        const good = yield* keys.create({ name: "good", scope: "AppAdmin" })
        const bad = yield* keys.create({ name: "bad", scope: "AppAdmin" })
        yield* keys.revoke(bad.record.id)
        yield* keys.verify(Redacted.value(good.key))
        away = true
        assert.strictEqual((yield* keys.verify(Redacted.value(good.key))).key_id, good.record.id)
        assert.strictEqual((yield* keys.verify("outside")).key_id, "env")
        const errors = yield* Effect.forEach([Redacted.value(bad.key), never, "malformed"], (key) =>
          Effect.flip(keys.verify(key))
        )
        assert.deepStrictEqual(
          errors.map((error) => error._tag),
          ["Unauthorized", "Unavailable", "Unauthorized"]
        )
        away = false
        assert.strictEqual((yield* Effect.flip(keys.verify(never)))._tag, "Unauthorized")
      }).pipe(
        Effect.provide(
          ApiKeys.layer({ adminKey: Redacted.make("outside") }).pipe(
            Layer.provide(Layer.merge(failing, uncertain)),
            Layer.provide(freshStore())
          )
        )
      )
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("keys are verified in memory; the database is read only after a change", () =>
    Effect.gen(function* () {
      let reads = 0
      const counting = Layer.effect(
        Store,
        Effect.map(Store, (store) => ({
          ...store,
          read: <B, F>(read: Effect.Effect<B, F>) =>
            Effect.suspend(() => {
              reads += 1
              return store.read(read)
            })
        }))
      )
      yield* Effect.gen(function* () {
        const keys = yield* ApiKeys
        const one = yield* keys.create({ name: "one", scope: "AppAdmin" })
        const verify = keys.verify(Redacted.value(one.key))
        yield* Effect.repeat(verify, { times: 100 })
        yield* Effect.flip(keys.verify(never))
        assert.strictEqual(reads, 1)
        const other = yield* keys.create({ name: "other", scope: "AppAdmin" })
        yield* Effect.all([verify, verify, keys.verify(Redacted.value(other.key))], { concurrency: 3 })
        assert.strictEqual(reads, 2)
        yield* keys.revoke(one.record.id)
        yield* Effect.flip(verify)
        yield* keys.verify(Redacted.value(other.key))
        assert.strictEqual(reads, 3)
      }).pipe(Effect.provide(ApiKeys.layer().pipe(Layer.provide(counting), Layer.provide(freshStore()))))
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.live("a key of another process is accepted at once, and refused at once after its revocation", () =>
    Effect.gen(function* () {
      const filename = yield* newDatabase
      yield* Effect.gen(function* () {
        const keys = yield* ApiKeys
        assert.deepStrictEqual(yield* keys.list, [])
        assert.strictEqual((yield* Effect.flip(keys.verify(never)))._tag, "Unauthorized")
        const [key = "", id = ""] = yield* runChild("keys.ts", filename, "create")
        assert.deepStrictEqual(yield* keys.verify(key), {
          key_id: id,
          name: "other process",
          scope: "Metrics"
        })
        yield* runChild("keys.ts", filename, "revoke", id)
        assert.strictEqual((yield* Effect.flip(keys.verify(key)))._tag, "Unauthorized")
      }).pipe(Effect.provide(ApiKeys.layer().pipe(Layer.provideMerge(layerSqlite({ filename })))))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
