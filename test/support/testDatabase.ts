/**
 * Which database the tests of the service run on. `MUSTER_TEST_DATABASE=postgres` gives every data folder a PostgreSQL
 * database of its own in place of the SQLite file; a service, or a command, that comes back to the folder finds it again.
 */
import { Effect } from "effect"
import type { PostgresFailed } from "./postgres.ts"

export const testDatabase: "sqlite" | "postgres" =
  process.env.MUSTER_TEST_DATABASE === "postgres" ? "postgres" : "sqlite"

const known = new Map<string, string>()

/** URL of the database of a data folder; made when missing. Undefined: the SQLite file in it. */
export const databaseUrlOf = (dataDir: string): Effect.Effect<string | undefined, PostgresFailed> =>
  testDatabase === "sqlite"
    ? Effect.succeed(undefined)
    : Effect.suspend(() => {
        const url = known.get(dataDir)
        if (url !== undefined) return Effect.succeed(url)
        // Needs the test runner, which a bench has not.
        return Effect.promise(() => import("./postgresDatabase.ts")).pipe(
          Effect.flatMap(({ postgresDatabaseFor }) => postgresDatabaseFor(dataDir)),
          Effect.tap((made) => Effect.sync(() => known.set(dataDir, made)))
        )
      })

/** The settings that name the database of a data folder. */
export const databaseEnv = (dataDir: string): Effect.Effect<Record<string, string>, PostgresFailed> =>
  Effect.map(
    databaseUrlOf(dataDir),
    (url): Record<string, string> =>
      url === undefined ? {} : { MUSTER_DATABASE_URL: url, ...likeSqlite, ...slowMachine }
  )

/** A service by itself. */
const likeSqlite = { MUSTER_EMBEDDED_NODE: "true" }
/** No test of these is about a database that is slow, and the machine may be. */
const slowMachine = { MUSTER_DATABASE_TIMEOUT: "5000" }
