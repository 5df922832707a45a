import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { insertRows, upsertRows } from "../sql/insertRows.ts"
import { firstRow } from "../sql/rows.ts"
import { write } from "../sql/Transaction.ts"

const TABLE = "sftp_host_key"

const readKey = firstRow(Schema.Struct({ sealed: Schema.String }))

/** The host key of SFTP, encrypted (spec 10.6). */
export class SftpRepo extends Context.Service<SftpRepo>()("muster/store/SftpRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    hostKey: Effect.map(
      readKey(sql`SELECT sealed FROM sftp_host_key`),
      Option.map((row) => row.sealed)
    ),
    /** @param replaces whether a stored key is replaced; else the first one stays */
    save: (sealed: string, replaces: boolean) =>
      write(
        replaces
          ? upsertRows(sql, TABLE, "id", [{ id: 1, sealed }])
          : insertRows(sql, TABLE, [{ id: 1, sealed }], "ON CONFLICT (id) DO NOTHING")
      )
  }))
}) {
  static readonly layer = Layer.effect(SftpRepo, SftpRepo.make)
}
