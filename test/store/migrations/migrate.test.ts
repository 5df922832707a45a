import { existsSync, readFileSync } from "node:fs"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Migrator, SqlClient } from "effect/sql"
import { databaseStatus } from "../../../src/store/maintenance/databaseStatus.ts"
import { clientOf } from "../../../src/store/maintenance/openClient.ts"
import { initial } from "../../../src/store/migrations/0001_initial.ts"
import { nodeKeys } from "../../../src/store/migrations/0002_node_keys.ts"
import { removals } from "../../../src/store/migrations/0003_removals.ts"
import { moves } from "../../../src/store/migrations/0004_moves.ts"
import { tickets } from "../../../src/store/migrations/0005_tickets.ts"
import { holdings } from "../../../src/store/migrations/0006_holdings.ts"
import { nodePresence } from "../../../src/store/migrations/0007_node_presence.ts"
import { nodeUnreachable } from "../../../src/store/migrations/0008_node_unreachable.ts"
import {
  currentSchema,
  migrations as everyMigration,
  MIGRATIONS_TABLE,
  migrate,
  schemaVersion
} from "../../../src/store/migrations/migrate.ts"
import { NodeRepo } from "../../../src/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../../src/store/repos/ServerRepo.ts"
import { encodeServer } from "../../../src/store/repos/serverRows.ts"
import { Store } from "../../../src/store/Store.ts"
import { node, server } from "../../support/samples.ts"
import { databases, databaseUrl, newUrl, storeAt } from "../support/database.ts"

const onDatabase = (url: string) => Effect.provide(clientOf(databaseUrl(url)))
const open = (url: string) => Effect.scoped(Layer.build(Layer.fresh(storeAt(url))))

const migrations = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly id: number }>`SELECT migration_id AS id FROM ${sql(MIGRATIONS_TABLE)} ORDER BY id`
)

describe.each(databases)("design: migrations (%s)", (kind) => {
  it.live("migrations run once, whichever replica is first", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      assert.strictEqual(yield* onDatabase(url)(currentSchema), 0)
      yield* Effect.forEach(Array.from({ length: 8 }), () => onDatabase(url)(migrate), {
        concurrency: "unbounded",
        discard: true
      })
      assert.strictEqual(yield* onDatabase(url)(currentSchema), schemaVersion)
      assert.deepStrictEqual(
        (yield* onDatabase(url)(migrations)).map(({ id }) => id),
        Object.keys(everyMigration).map((name) => Number.parseInt(name, 10))
      )
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("missing migrations are applied to an existing database, and its data stays", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      // A database of an earlier version.
      const old = Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const loader = Migrator.fromRecord({ "0001_initial": initial, "0002_node_keys": nodeKeys })
        yield* sql.withTransaction(
          Effect.andThen(
            Migrator.make({})({ loader, table: MIGRATIONS_TABLE }),
            sql`UPDATE counters SET value = 41 WHERE name = 'keys'`
          )
        )
      })
      yield* onDatabase(url)(old)
      assert.strictEqual(yield* onDatabase(url)(currentSchema), 2)
      yield* Effect.provide(
        Effect.flatMap(Store, (store) => store.ping),
        storeAt(url)
      )
      assert.strictEqual(yield* onDatabase(url)(currentSchema), schemaVersion)
      const kept = Effect.flatMap(
        SqlClient.SqlClient,
        (sql) => sql`SELECT value FROM counters WHERE name = 'keys'`
      )
      assert.deepStrictEqual(
        (yield* onDatabase(url)(kept)).map((row) => ({ ...row })),
        [{ value: 41 }]
      )
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live(
    "the reservations of servers are computed from their records, on both nodes during a migration",
    () =>
      Effect.gen(function* () {
        const url = yield* newUrl(kind)
        const old = Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const loader = Migrator.fromRecord({
            "0001_initial": initial,
            "0002_node_keys": nodeKeys,
            "0003_removals": removals,
            "0004_moves": moves,
            "0005_tickets": tickets
          })
          yield* Migrator.make({})({ loader, table: MIGRATIONS_TABLE })
          for (const [id, node_id, memory_limit] of [
            ["a", "n1", 100],
            ["b", "n1", 0],
            ["c", "n2", 300.5]
          ] as const) {
            const made = server(id, [25_565], node_id)
            const limits = { memory_limit, disk_space: 2 }
            // The columns of a later migration do not exist yet.
            const {
              expires_at: _,
              labels: __,
              name: ___,
              updated_at: ____,
              restart: _____,
              redefinition: ______,
              created_by: _______,
              trace: ________,
              definition_hash: _________,
              run: __________,
              problem: ___________,
              ...row
            } = yield* encodeServer(made)
            const definition = JSON.stringify({ ...made.definition, limits })
            yield* sql`INSERT INTO servers ${sql.insert({ ...row, definition })}`
          }
          const move = { server_id: "c", from_node: "n1", phase: "arriving", arrival: "x" }
          yield* sql`INSERT INTO moves ${sql.insert(move)}`
        }).pipe((all) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(all)))
        yield* onDatabase(url)(old)
        yield* open(url)
        const rows = yield* onDatabase(url)(
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`SELECT node_id, servers, memory_bytes, disk_bytes FROM commitments ORDER BY node_id`
          )
        )
        const MIB = 1024 ** 2
        assert.deepStrictEqual(
          rows.map((row) => Object.values(row).map(String)),
          [
            ["n1", "3", String((100 + 512 + 300.5) * MIB), "6000000"],
            ["n2", "1", String(300.5 * MIB), "2000000"]
          ]
        )
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live(
    "definitions are stored once; processes of the earlier version read and change servers as before",
    () =>
      Effect.gen(function* () {
        const url = yield* newUrl(kind)
        /** A record, and its row in the schema of the earlier version. */
        const made = Effect.fnUntraced(function* (id: string, port: number, ports: number) {
          const { definition, ...record } = server(id, [port])
          const {
            definition_hash: _,
            run: __,
            problem: ___,
            ...row
          } = yield* encodeServer({ ...record, definition })
          const own = { ...definition, ports }
          return [
            { ...record, definition: own },
            { ...row, definition: JSON.stringify(own) }
          ] as const
        })
        const [[a, rowA], [b, rowB], [c, rowC], [d, rowD]] = yield* Effect.all([
          made("a", 1, 1),
          made("b", 2, 1),
          made("c", 3, 2),
          made("d", 4, 2)
        ])
        const inTransaction = <A, E>(
          use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E, SqlClient.SqlClient>
        ) => onDatabase(url)(Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(use(sql))))
        yield* inTransaction((sql) =>
          Effect.andThen(
            Migrator.make({})({
              loader: Migrator.fromRecord(
                Object.fromEntries(Object.entries(everyMigration).filter(([name]) => name < "0024"))
              ),
              table: MIGRATIONS_TABLE
            }),
            sql`INSERT INTO servers ${sql.insert([rowA, rowB, rowC])}`
          )
        )
        const records = Effect.provide(
          Effect.gen(function* () {
            const repo = yield* ServerRepo
            return yield* (yield* Store).read(repo.all)
          }),
          Layer.fresh(storeAt(url))
        )
        const texts = inTransaction((sql) => sql`SELECT definition FROM definitions`)
        assert.deepStrictEqual(yield* records, [a, b, c])
        assert.lengthOf(yield* texts, 2)
        yield* inTransaction((sql) =>
          Effect.all([
            sql`INSERT INTO servers ${sql.insert([rowD])}`,
            sql`UPDATE servers SET ${sql.update({ status: "running", definition: rowC.definition })} WHERE id = 'a'`,
            sql`DELETE FROM servers WHERE id = 'b'`
          ])
        )
        const changed = { ...a, status: "running", definition: c.definition }
        assert.deepStrictEqual<unknown>(yield* records, [changed, c, d])
        assert.lengthOf(yield* texts, 2)
        const seen = yield* inTransaction((sql) => sql`SELECT * FROM servers ORDER BY id`)
        assert.deepStrictEqual(
          seen.map(({ expiry_announced: _, ...row }) => row),
          [{ ...rowA, status: "running", definition: rowC.definition }, rowC, rowD]
        )
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("tokens in clear text expire and are erased from the files", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      const clear = (n: number) => `clear-token-${String(n).padStart(4, "0")}`
      const old = Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const loader = Migrator.fromRecord({
          "0001_initial": initial,
          "0002_node_keys": nodeKeys,
          "0003_removals": removals,
          "0004_moves": moves,
          "0005_tickets": tickets,
          "0006_holdings": holdings,
          "0007_node_presence": nodePresence,
          "0008_node_unreachable": nodeUnreachable
        })
        yield* sql.withTransaction(Migrator.make({})({ loader, table: MIGRATIONS_TABLE }))
        // Each token replaces another; some rows are deleted with theirs.
        for (let n = 0; n < 60; n++) {
          const { allocations, capacity, runtimes, system, ...plain } = node(`node-${n % 20}`)
          const texts = { allocations, capacity, runtimes, system }
          const row = {
            ...plain,
            ...Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, JSON.stringify(value)])),
            token: clear(n),
            drained: 0,
            departed: 0,
            connected: n % 2,
            embedded: 0
          }
          const { id, ...replaced } = row
          yield* sql.withTransaction(
            sql`INSERT INTO nodes ${sql.insert(row)} ON CONFLICT (id) DO UPDATE SET ${sql.update(replaced)}`
          )
        }
        yield* sql.withTransaction(sql`DELETE FROM nodes WHERE id > 'node-5'`)
      })
      yield* onDatabase(url)(old)
      const filesHold = () => {
        const file = url.replace("sqlite:", "")
        const texts = [file, `${file}-wal`].map((path) =>
          existsSync(path) ? readFileSync(path, "latin1") : ""
        )
        return texts.some((text) => text.includes("clear-token-"))
      }
      if (kind === "sqlite") assert.isTrue(filesHold())
      yield* Effect.gen(function* () {
        const { all } = yield* NodeRepo
        const tokens = (yield* all).map(({ token }) => token)
        assert.isAbove(tokens.length, 0)
        assert.deepStrictEqual(new Set(tokens), new Set([""]))
        // Also while the store is open, before the WAL is checkpointed.
        if (kind === "sqlite") assert.isFalse(filesHold())
      }).pipe(Effect.provide(storeAt(url)))
      if (kind === "sqlite") assert.isFalse(filesHold())
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a newer schema is refused with one line and not changed", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* open(url)
      const newer = schemaVersion + 2
      yield* onDatabase(url)(
        Effect.flatMap(SqlClient.SqlClient, (sql) =>
          sql.withTransaction(
            sql`INSERT INTO ${sql(MIGRATIONS_TABLE)} ${sql.insert({ migration_id: newer, name: "later" })}`
          )
        )
      )
      const error = yield* Effect.flip(open(url))
      assert.strictEqual(error.reason, "NewerSchema")
      assert.strictEqual(
        error.message,
        `the database has schema ${newer}, this version knows ${schemaVersion}: run a newer muster`
      )
      assert.strictEqual(yield* onDatabase(url)(currentSchema), newer)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a database of another program is refused with one line and not changed", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* onDatabase(url)(
        Effect.flatMap(SqlClient.SqlClient, (sql) =>
          sql.withTransaction(sql`CREATE TABLE servers (name TEXT)`)
        )
      )
      const error = yield* Effect.flip(open(url))
      assert.strictEqual(
        error.message,
        'the database has a table "servers" that is not Muster\'s: name an empty one'
      )
      assert.strictEqual(yield* onDatabase(url)(currentSchema), 0)
      const { foreign } = yield* onDatabase(url)(databaseStatus)
      assert.strictEqual(foreign, "servers")
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
