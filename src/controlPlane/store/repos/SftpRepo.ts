import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import { databaseMillis } from "../sql/dialect.ts"
import { insertRows, upsertRows } from "../sql/insertRows.ts"
import { countOf, firstRow } from "../sql/rows.ts"
import { type Writing, write } from "../sql/Transaction.ts"

const TABLE = "sftp_host_key"

const readKey = firstRow(Schema.Struct({ sealed: Schema.String }))

const SftpHolder = Schema.Struct({ key_id: Schema.String, server_id: ServerId })
/** The key that asked for a password, and the server whose files the password opens. */
export type SftpHolder = typeof SftpHolder.Type
const readHolder = firstRow(SftpHolder)

export interface PasswordLimits {
  /** Milliseconds. */
  readonly lifetime: number
  readonly most: number
  readonly mostOfKey: number
}

/** The host key of SFTP, encrypted, and temporary passwords by the SHA-256 of their text, in hex (spec 10.6). */
export class SftpRepo extends Context.Service<SftpRepo>()("muster/store/SftpRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => {
    const count = (condition: Statement.Fragment) =>
      countOf(sql`SELECT COUNT(*) AS count FROM sftp_logins WHERE ${condition}`)
    const prune = (now: number) => sql`DELETE FROM sftp_logins WHERE expires_at <= ${now}`
    return {
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
        ),
      /** Stores a password and returns its expiry in ms since the epoch, or the bound that forbids it. */
      insertPassword: Effect.fn("SftpRepo.insertPassword")(function* (
        hash: string,
        holder: SftpHolder,
        { lifetime, most, mostOfKey }: PasswordLimits
      ): Writing<number | "most" | "mostOfKey"> {
        const now = yield* databaseMillis(sql)
        yield* prune(now)
        if ((yield* count(sql`1 = 1`)) >= most) return "most"
        if ((yield* count(sql`key_id = ${holder.key_id}`)) >= mostOfKey) return "mostOfKey"
        const expires_at = now + lifetime
        yield* sql`INSERT INTO sftp_logins ${sql.insert({ hash, ...holder, expires_at })}`
        return expires_at
      }),
      /** Returns the holder of a valid password whose key is valid. The outside key has no record. */
      holder: Effect.fn("SftpRepo.holder")(function* (hash: string) {
        const now = yield* databaseMillis(sql)
        return Option.getOrUndefined(
          yield* readHolder(
            sql`SELECT key_id, server_id FROM sftp_logins WHERE hash = ${hash} AND expires_at > ${now}
              AND NOT EXISTS (SELECT 1 FROM api_keys WHERE id = sftp_logins.key_id
                AND (revoked_at IS NOT NULL OR expires_at <= ${new Date(now).toISOString()}))`
          )
        )
      }),
      prunePasswords: write(Effect.flatMap(databaseMillis(sql), prune))
    }
  })
}) {
  static readonly layer = Layer.effect(SftpRepo, SftpRepo.make)
}
