import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { firstRow } from "../sql/rows.ts"

const readCommit = firstRow(Schema.Struct({ commit: Schema.String }))

/** What is acknowledged must survive a crash of the database: says so where its settings give that away. */
export const warnOfLaxCommits = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const found = yield* readCommit(sql`SELECT current_setting('synchronous_commit') AS commit`)
  if (found._tag === "None" || found.value.commit !== "off") return
  yield* Effect.logWarning(
    "PostgreSQL runs with synchronous_commit=off: a crash of it may lose what was acknowledged"
  )
}).pipe(Effect.ignore)
