import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** Webhooks with the place up to which each has delivered, and their last attempts. */
export const webhooks = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE webhooks (
    id ${id} PRIMARY KEY NOT NULL,
    created_at ${big} NOT NULL,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    sealed TEXT NOT NULL,
    position ${big} NOT NULL,
    is_parked INTEGER NOT NULL,
    failing_since ${big},
    failure TEXT
  )`
  yield* sql`CREATE TABLE webhook_deliveries (
    id ${id} PRIMARY KEY NOT NULL,
    webhook_id ${id} NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    at ${big} NOT NULL,
    delivery TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, at, id)`
})
