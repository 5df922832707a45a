import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { firstRow } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

const readFingerprint = firstRow(Schema.Struct({ fingerprint: Schema.String }))

/** The secret of the services on this database, as a fingerprint that discloses nothing. */
export class SecretRepo extends Context.Service<
  SecretRepo,
  {
    /** None: no service has recorded it. */
    readonly fingerprint: Effect.Effect<Option.Option<string>, SqlError.SqlError>
    save(fingerprint: string): Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/SecretRepo") {
  static readonly layer = Layer.effect(
    SecretRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      return SecretRepo.of({
        fingerprint: Effect.map(
          readFingerprint(sql`SELECT fingerprint FROM secret_fingerprint`),
          Option.map((row) => row.fingerprint)
        ),
        save: (fingerprint) =>
          Effect.asVoid(sql`INSERT INTO secret_fingerprint (id, fingerprint) VALUES (1, ${fingerprint})
            ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint`)
      })
    })
  )
}
