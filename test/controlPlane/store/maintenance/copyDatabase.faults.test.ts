import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Schedule, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { copyDatabase } from "../../../../src/controlPlane/store/maintenance/copyDatabase.ts"
import { IdempotencyRepo } from "../../../../src/controlPlane/store/repos/IdempotencyRepo.ts"
import { KeyRepo } from "../../../../src/controlPlane/store/repos/KeyRepo.ts"
import { NodeRepo } from "../../../../src/controlPlane/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { lockFileOf, takeServiceLock } from "../../../../src/controlPlane/store/sqlite/database.ts"
import { newPostgresDatabase, statementsOn } from "../../../support/postgresDatabase.ts"
import { key, node, server } from "../../../support/samples.ts"
import { append, databaseUrl, newDatabase, newUrl, storeAt } from "../support/database.ts"

const copy = (from: string, to: string) => copyDatabase(databaseUrl(from), databaseUrl(to))

/** Rows in every table that the services write, and more journal entries than one read takes. */
const fill = (url: string) =>
  Effect.gen(function* () {
    const store = yield* Store
    const servers = yield* ServerRepo
    const nodes = yield* NodeRepo
    const keys = yield* KeyRepo
    const idempotency = yield* IdempotencyRepo
    yield* store.write(nodes.save(node("node-1")))
    yield* store.write(keys.insert(key("key_1")))
    yield* store.write(
      idempotency.keepAll([
        { key: "once", body_hash: "h", response: '{"it\'s": "\u{1F600}"}', created_at: 1 }
      ])
    )
    for (let i = 0; i < 30; i++) {
      const id = `srv_${String(i).padStart(4, "0")}`
      yield* store.write(Effect.andThen(servers.insert(server(id, [1_000 + i, 2_000 + i])), append(id)))
    }
    const { overrides: _, ...plain } = server("srv_plain", [3_000])
    yield* store.write(servers.insert(plain))
    yield* store.write(servers.setRemoving(ServerId.make("srv_0007"), true))
    yield* store.write(servers.set(ServerId.make("srv_0001"), { last_sequence: Number.MAX_SAFE_INTEGER }))
    yield* store.write(append(...Array.from({ length: 1_500 }, (_, i) => `s${i}`)))
  }).pipe(Effect.provide(storeAt(url)))

const contents = (url: string) =>
  Effect.gen(function* () {
    const store = yield* Store
    const journal = yield* Journal
    const servers = yield* ServerRepo
    const nodes = yield* NodeRepo
    const keys = yield* KeyRepo
    const idempotency = yield* IdempotencyRepo
    return {
      servers: yield* store.read(servers.all),
      removing: yield* store.read(servers.removing),
      nodes: yield* store.read(nodes.all),
      keys: yield* store.read(keys.all),
      keysVersion: yield* store.read(keys.version),
      once: yield* store.read(idempotency.find("once", 0)),
      journal: Array.from(yield* Stream.runCollect(journal.after(0))),
      bounds: yield* journal.bounds
    }
  }).pipe(Effect.provide(storeAt(url)))

const refusal = (from: string, to: string) => Effect.flip(copy(from, to))

describe("muster db copy", () => {
  it.live.each([
    ["sqlite", "postgres"],
    ["postgres", "sqlite"],
    ["sqlite", "sqlite"],
    ["postgres", "postgres"]
  ] as const)("%s to %s: the copy is complete, and its cursors continue those of the source", ([from, to]) =>
    Effect.gen(function* () {
      const [source, target] = [yield* newUrl(from), yield* newUrl(to)]
      yield* fill(source)
      const tables = yield* copy(source, target)
      const copied = Object.fromEntries(tables.map(({ rows, table }) => [table, rows]))
      assert.strictEqual(copied.servers, 31)
      assert.strictEqual(copied.ports, 61)
      const original = yield* contents(source)
      assert.isAtLeast(original.journal.length, 1_530)
      assert.strictEqual(copied.journal, original.journal.length)
      assert.deepStrictEqual(yield* contents(target), original)
      // A copy back equals the source, table by table.
      const back = yield* newUrl(from)
      assert.deepStrictEqual(yield* copy(target, back), tables)
      const next = yield* Effect.gen(function* () {
        const store = yield* Store
        yield* store.write(append("next"))
        return yield* (yield* Journal).bounds
      }).pipe(Effect.provide(storeAt(target)))
      assert.deepStrictEqual(next, { oldest: 1, newest: original.bounds.newest + 1 })
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a target with data is refused and not changed", () =>
    Effect.gen(function* () {
      const [source, target] = [yield* newUrl("sqlite"), yield* newUrl("postgres")]
      yield* fill(source)
      yield* Effect.flatMap(Store, (store) => store.write(append("other"))).pipe(
        Effect.provide(storeAt(target))
      )
      const error = yield* refusal(source, target)
      assert.match(error.message, /is not empty \(\w+ has rows\): name a new database$/)
      assert.strictEqual((yield* contents(target)).journal.length, 1)
      const same = yield* refusal(source, source)
      assert.strictEqual(same.message, "source and target are the same database")
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a database in use by a service is refused as source and as target", () =>
    Effect.gen(function* () {
      const postgres = yield* newPostgresDatabase()
      const file = yield* newDatabase
      const sqlite = `sqlite:${file}`
      yield* fill(sqlite)
      const running = Effect.gen(function* () {
        yield* Layer.build(storeAt(postgres))
        const asTarget = yield* refusal(sqlite, postgres)
        assert.match(asTarget.message, /^a muster service runs on PostgreSQL .*: stop it first$/)
        const asSource = yield* refusal(postgres, yield* newUrl("sqlite"))
        assert.match(asSource.message, /^a muster service runs on PostgreSQL .*: stop it first$/)
      })
      yield* Effect.scoped(running)
      const locked = Effect.gen(function* () {
        yield* takeServiceLock(lockFileOf(file))
        const error = yield* refusal(sqlite, postgres)
        assert.match(error.message, /^a muster service runs on SQLite .*: stop it first$/)
      })
      yield* Effect.scoped(locked)
      // PostgreSQL releases the lock of the service a moment after its connection has closed.
      const whileLocked = { schedule: Schedule.spaced("20 millis"), times: 250 }
      yield* Effect.retry(copy(sqlite, postgres), whileLocked)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a missing source, a source of another version and tables of another program are refused", () =>
    Effect.gen(function* () {
      const source = yield* newPostgresDatabase()
      const missing = yield* refusal(`sqlite:${yield* newDatabase}`, source)
      assert.match(missing.message, /^there is no database yet: SQLite /)
      const none = yield* refusal(source, yield* newUrl("sqlite"))
      assert.match(none.message, /has schema 0, this version has \d+: run `muster db migrate` on it first$/)
      yield* fill(source)
      yield* statementsOn(source, "INSERT INTO muster_migrations VALUES (9999, now(), 'later')")
      const newer = yield* refusal(source, yield* newUrl("sqlite"))
      assert.match(newer.message, /has schema 9999, this version knows \d+: run a newer muster$/)
      yield* statementsOn(
        source,
        "DELETE FROM muster_migrations WHERE migration_id = 9999",
        "CREATE TABLE invoices (id INTEGER PRIMARY KEY)"
      )
      const foreign = yield* refusal(source, yield* newUrl("sqlite"))
      assert.strictEqual(foreign.message, "the table invoices is none of muster's: move it elsewhere")
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a copy that differs from its source is detected and removed", () =>
    Effect.gen(function* () {
      const [source, target] = [yield* newUrl("sqlite"), yield* newPostgresDatabase()]
      yield* fill(source)
      yield* Effect.provide(
        Effect.flatMap(Store, (store) => store.ping),
        storeAt(target)
      )
      yield* statementsOn(
        target,
        `CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN NEW.name := upper(NEW.name); RETURN NEW; END'`,
        "CREATE TRIGGER spoil BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION spoil()"
      )
      const error = yield* refusal(source, target)
      assert.strictEqual(
        error.message,
        "nodes is not the same after the copy (1 rows, then 1): nothing was kept"
      )
      assert.deepStrictEqual((yield* contents(target)).servers, [])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("during a copy, no service starts on the source or the target", () =>
    Effect.gen(function* () {
      const url = yield* newPostgresDatabase()
      yield* fill(url)
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Effect.promise(
            () => import("../../../../src/controlPlane/store/maintenance/copyDatabase.ts")
          ).pipe(Effect.flatMap(({ lockDatabase }) => lockDatabase(databaseUrl(url))))
          const error = yield* Effect.flip(Effect.scoped(Layer.build(Layer.fresh(storeAt(url)))))
          assert.strictEqual(error.reason, "InUse")
          assert.match(error.message, /is being copied/)
        })
      )
      const context = yield* Layer.build(Layer.fresh(storeAt(url)))
      yield* Context.get(context, Store).ping
      assert.isDefined(Context.get(context, SqlClient.SqlClient))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
