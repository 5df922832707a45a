/**
 * The database of the tested services. `MUSTER_TEST_DATABASE=postgres` gives every data folder its own PostgreSQL
 * database instead of the SQLite file; later services and commands on the folder use the same database.
 */
import { Effect } from "effect"
import type { PostgresFailed } from "./postgres.ts"

export const testDatabase: "sqlite" | "postgres" =
  process.env.MUSTER_TEST_DATABASE === "postgres" ? "postgres" : "sqlite"

const known = new Map<string, string>()

/** The URL of the database of a data folder, created if missing. Undefined: the SQLite file in the folder. */
export const databaseUrlOf = (dataDir: string): Effect.Effect<string | undefined, PostgresFailed> =>
  testDatabase === "sqlite"
    ? Effect.succeed(undefined)
    : Effect.suspend(() => {
        const url = known.get(dataDir)
        if (url !== undefined) return Effect.succeed(url)
        // Requires the test runner, which benches do not have.
        return Effect.promise(() => import("./postgresDatabase.ts")).pipe(
          Effect.flatMap(({ postgresDatabaseFor }) => postgresDatabaseFor(dataDir)),
          Effect.tap((made) => Effect.sync(() => known.set(dataDir, made)))
        )
      })

/** The settings that select the database of a data folder. */
export const databaseEnv = (dataDir: string): Effect.Effect<Record<string, string>, PostgresFailed> =>
  Effect.map(
    databaseUrlOf(dataDir),
    (url): Record<string, string> =>
      url === undefined ? {} : { MUSTER_DATABASE_URL: url, ...likeSqlite, ...slowMachine }
  )

/** A single service. */
const likeSqlite = { MUSTER_EMBEDDED_NODE: "true" }
/** These tests do not cover slow databases, but the machine may be slow. */
const slowMachine = { MUSTER_DATABASE_TIMEOUT: "5000" }
