import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { upsertRows } from "../sql/insertRows.ts"
import { firstRow } from "../sql/rows.ts"
import { write } from "../sql/Transaction.ts"

const readFingerprint = firstRow(Schema.Struct({ fingerprint: Schema.String }))

/** The secret of the services on this database, as a fingerprint that discloses nothing. */
export class SecretRepo extends Context.Service<SecretRepo>()("muster/store/SecretRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    fingerprint: Effect.map(
      readFingerprint(sql`SELECT fingerprint FROM secret_fingerprint`),
      Option.map((row) => row.fingerprint)
    ),
    save: (fingerprint: string) =>
      write(upsertRows(sql, "secret_fingerprint", "id", [{ id: 1, fingerprint }]))
  }))
}) {
  static readonly layer = Layer.effect(SecretRepo, SecretRepo.make)
}
