/** A new database for each test, on the PostgreSQL of the test run or of the test. */
import { createHash, randomBytes } from "node:crypto"
import { PgConnection } from "@effect/sql-pg"
import { Effect, Redacted, type Scope } from "effect"
import { PostgresFailed, type PostgresServer } from "./postgres.ts"
import { sharedOfRun } from "./sharedOfRun.ts"

const shared = sharedOfRun("postgres").pipe(
  Effect.mapError(({ message }) => new PostgresFailed({ message })),
  Effect.map((url) => (database: string) => url.replace("*", database))
)

/** Runs statements on a separate connection, outside of the tested code. */
export const statementsOn = (url: string, ...statements: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const connection = yield* PgConnection.make({ url: Redacted.make(url) })
    const results: Array<ReadonlyArray<PgConnection.Row>> = []
    for (const statement of statements) {
      results.push((yield* connection.query(statement, [], false)).rows)
    }
    return results
  }).pipe(
    Effect.scoped,
    Effect.mapError(
      (error) => new PostgresFailed({ message: `${error.message}: ${String(error.reason.cause)}` })
    )
  )

/** The URL of a new, empty database, which is dropped with the scope. */
export const newPostgresDatabase = (
  server?: Pick<PostgresServer, "url">
): Effect.Effect<string, PostgresFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const url = server === undefined ? yield* shared : server.url
    const name = `test_${randomBytes(6).toString("hex")}`
    yield* Effect.acquireRelease(
      statementsOn(url("postgres"), `CREATE DATABASE ${name}`),
      // The server may have ended.
      () => Effect.ignore(statementsOn(url("postgres"), `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
    )
    return url(name)
  })

/** The URL of the database of a data folder; the first caller creates it, and it ends with the test run. */
export const postgresDatabaseFor = (dataDir: string): Effect.Effect<string, PostgresFailed> =>
  Effect.gen(function* () {
    const url = yield* shared
    const name = `data_${createHash("sha256").update(dataDir).digest("hex").slice(0, 24)}`
    const [found] = yield* statementsOn(
      url("postgres"),
      `SELECT 1 FROM pg_database WHERE datname = '${name}'`
    )
    if (found?.length === 0) yield* statementsOn(url("postgres"), `CREATE DATABASE ${name}`)
    return url(name)
  })
