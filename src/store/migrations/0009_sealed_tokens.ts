import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Name of the counter that is 1 while free space of a SQLite file may hold tokens in clear text. */
export const CLEAR_TOKENS = "clear_tokens"

/**
 * Tokens of nodes are encrypted from this version on. Those in clear text expire: each node registers again with its
 * next heartbeat. `secret_fingerprint` identifies the secret of the services, in at most one row.
 */
export const sealedTokens = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE secret_fingerprint (id INTEGER PRIMARY KEY NOT NULL, fingerprint TEXT NOT NULL)`
  yield* sql`INSERT INTO counters (name, value) SELECT ${CLEAR_TOKENS}, 1 WHERE EXISTS (SELECT 1 FROM nodes)`
  yield* sql`UPDATE nodes SET token = ''`
})
