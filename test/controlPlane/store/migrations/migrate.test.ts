import { readFileSync } from "node:fs"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient, Statement } from "effect/sql"
import { clientOf } from "../../../../src/controlPlane/store/layers/layerDatabase.ts"
import { databaseStatus } from "../../../../src/controlPlane/store/maintenance/tables.ts"
import {
  currentSchema,
  migrations as everyMigration,
  MIGRATIONS_TABLE,
  migrate,
  migrateTo,
  schemaVersion
} from "../../../../src/controlPlane/store/migrations/migrate.ts"
import { databases, databaseUrl, newUrl, storeAt } from "../support/database.ts"

const onDatabase = (url: string) => Effect.provide(clientOf(databaseUrl(url)))
const inTransaction =
  (url: string) =>
  <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
    onDatabase(url)(Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(use(sql))))
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

  it.live("a replica that starts while another creates the schema starts, too", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      let isCreated = false
      const other = Effect.suspend(() => {
        isCreated = true
        return Effect.orDie(onDatabase(url)(migrate))
      })
      // The schema appears after the first look at what is applied.
      const looksForTables: Statement.Transformer = (statement) =>
        !isCreated && statement.compile()[1].includes("servers")
          ? Effect.as(Effect.provideService(other, Statement.CurrentTransformer, undefined), statement)
          : Effect.succeed(statement)
      yield* onDatabase(url)(migrate).pipe(
        Effect.provideService(Statement.CurrentTransformer, looksForTables)
      )
      assert.isTrue(isCreated)
      assert.strictEqual(yield* onDatabase(url)(currentSchema), schemaVersion)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a later migration is applied to an existing database, and its data stays", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* open(url)
      yield* inTransaction(url)((sql) => sql`UPDATE counters SET value = 41 WHERE name = 'keys'`)
      const later = Effect.flatMap(
        SqlClient.SqlClient,
        (sql) => sql`ALTER TABLE counters ADD COLUMN unit TEXT`
      )
      yield* onDatabase(url)(migrateTo({ ...everyMigration, "0002_later": Effect.asVoid(later) }))
      assert.strictEqual(yield* onDatabase(url)(currentSchema), 2)
      const kept = yield* inTransaction(url)(
        (sql) => sql`SELECT value, unit FROM counters WHERE name = 'keys'`
      )
      assert.deepStrictEqual(
        kept.map((row) => ({ ...row })),
        [{ value: 41, unit: null }]
      )
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a migration that fails changes nothing, and its error names the statement", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* open(url)
      const broken = Effect.flatMap(SqlClient.SqlClient, (sql) =>
        Effect.andThen(sql`DELETE FROM counters`, Effect.asVoid(sql`DROP TABLE no_such_table`))
      )
      const error = yield* Effect.flip(
        onDatabase(url)(migrateTo({ ...everyMigration, "0002_broken": broken }))
      )
      assert.include(error.message, "no_such_table")
      assert.strictEqual(yield* onDatabase(url)(currentSchema), schemaVersion)
      assert.isAbove((yield* inTransaction(url)((sql) => sql`SELECT name FROM counters`)).length, 0)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a database of a version before 0.2.0 is refused with one line, and nothing is written to it", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* inTransaction(url)((sql) =>
        Effect.all([
          sql`CREATE TABLE ${sql(MIGRATIONS_TABLE)} (migration_id INTEGER PRIMARY KEY, name TEXT NOT NULL)`,
          sql`INSERT INTO ${sql(MIGRATIONS_TABLE)} ${sql.insert([
            { migration_id: 1, name: "initial" },
            { migration_id: 2, name: "node_keys" }
          ])}`,
          sql`CREATE TABLE servers (id TEXT, definition TEXT)`
        ])
      )
      const content = () => (kind === "sqlite" ? readFileSync(url.replace("sqlite:", "")) : undefined)
      const before = content()
      const error = yield* Effect.flip(open(url))
      assert.strictEqual(error.reason, "Unsupported")
      assert.strictEqual(
        error.message,
        "the database is of a version before 0.2.0, which no later version reads: name a new database or data folder"
      )
      assert.deepStrictEqual(content(), before)
      assert.strictEqual((yield* onDatabase(url)(migrations)).length, 2)
      assert.strictEqual((yield* onDatabase(url)(databaseStatus)).refusal, error.message)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("a newer schema is refused with one line and not changed", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      yield* open(url)
      const newer = schemaVersion + 2
      yield* inTransaction(url)(
        (sql) =>
          sql`INSERT INTO ${sql(MIGRATIONS_TABLE)} ${sql.insert({ migration_id: newer, name: "later" })}`
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
      yield* inTransaction(url)((sql) => sql`CREATE TABLE servers (name TEXT)`)
      const error = yield* Effect.flip(open(url))
      assert.strictEqual(
        error.message,
        'the database has a table "servers" that is not Muster\'s: name an empty one'
      )
      assert.strictEqual(yield* onDatabase(url)(currentSchema), 0)
      assert.strictEqual((yield* onDatabase(url)(databaseStatus)).refusal, error.message)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
