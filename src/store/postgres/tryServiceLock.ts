import { Effect } from "effect"
import type { PostgresUrl } from "../sql/DatabaseUrl.ts"
import { advisoryLocks } from "../sql/dialect.ts"
import { defaultTimeouts, openSession } from "./session.ts"
import { startError } from "./startError.ts"

/** Takes the services' lock exclusively until the scope closes; false: a service runs. */
export const tryServiceLock = Effect.fnUntraced(
  function* (url: PostgresUrl) {
    const { connection, run } = yield* openSession(url, defaultTimeouts)
    const { rows } = yield* run(
      connection.query(`SELECT pg_try_advisory_lock(${advisoryLocks.service}) AS taken`)
    )
    return rows[0]?.taken === true
  },
  (effect, url) => Effect.mapError(effect, (error) => startError(error, url))
)
