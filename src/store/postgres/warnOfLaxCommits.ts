import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { firstRow } from "../sql/rows.ts"

const readCommit = firstRow(Schema.Struct({ commit: Schema.String }))

/** Warns of database settings with which an acknowledged write can be lost in a crash of the database. */
export const warnOfLaxCommits = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const found = yield* readCommit(sql`SELECT current_setting('synchronous_commit') AS commit`)
  if (found._tag === "None" || found.value.commit !== "off") return
  yield* Effect.logWarning(
    "PostgreSQL runs with synchronous_commit=off: a crash of it may lose what was acknowledged"
  )
}).pipe(Effect.ignore)
