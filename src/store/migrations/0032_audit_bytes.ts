import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The bytes of the audit log, in all and of each entry; those of earlier entries are estimated. */
export const auditBytes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE audit ADD COLUMN bytes INTEGER NOT NULL DEFAULT 1024`
  yield* sql`INSERT INTO counters (name, value) SELECT 'audit_bytes', COUNT(*) * 1024 FROM audit`
})
