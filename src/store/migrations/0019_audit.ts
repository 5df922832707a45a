import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** The audit log, and the objects of bulk actions. */
export const audit = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`CREATE TABLE audit (
    id ${id} PRIMARY KEY NOT NULL,
    object_id ${id},
    key_id ${id},
    actor TEXT NOT NULL,
    action ${id} NOT NULL,
    status INTEGER NOT NULL,
    entry TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX audit_by_object ON audit (object_id, id)`
  yield* sql`CREATE TABLE audit_objects (
    entry_id ${id} NOT NULL REFERENCES audit (id) ON DELETE CASCADE,
    object_id ${id} NOT NULL,
    PRIMARY KEY (entry_id, object_id)
  )`
  yield* sql`CREATE INDEX audit_objects_by_object ON audit_objects (object_id)`
})
