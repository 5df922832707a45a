import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import { databaseMillis } from "../sql/Backend.ts"
import { countOf, firstRow, insertRows, tableOf, upsertRows } from "../sql/rows.ts"
import { keysChanged, type Writing, write } from "../sql/Transaction.ts"
import { atNow, isValidAt, type TicketLimits } from "./TicketRepo.ts"

const TABLE = "sftp_host_key"

const readKey = firstRow(Schema.Struct({ sealed: Schema.String }))

const SftpHolder = Schema.Struct({ key_id: Schema.String, server_id: ServerId })
/** The key that asked for a password, and the server whose files the password opens. */
export type SftpHolder = typeof SftpHolder.Type
const readHolder = firstRow(SftpHolder)

/** The host key of SFTP, encrypted, and temporary passwords by the SHA-256 of their text, in hex (spec 10.6). */
export class SftpRepo extends Context.Service<SftpRepo>()("muster/store/SftpRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => {
    const count = (condition: Statement.Fragment) =>
      countOf(sql`SELECT COUNT(*) AS count FROM sftp_logins WHERE ${condition}`)
    const prune = (now: number) => sql`DELETE FROM sftp_logins WHERE expires_at <= ${now}`
    return {
      hostKey: Effect.map(readKey(sql`SELECT sealed FROM sftp_host_key`), (row) => row?.sealed),
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
        { lifetime, most, mostOfKey }: TicketLimits
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
        return yield* readHolder(
          sql`SELECT key_id, server_id FROM sftp_logins WHERE hash = ${hash}
            AND ${isValidAt(sql, "sftp_logins", now)}`
        )
      }),
      prunePasswords: atNow(sql, prune)
    }
  })
}) {
  static readonly layer = Layer.effect(SftpRepo, SftpRepo.make)
}

const SshKeyRecord = Schema.Struct({
  fingerprint: Schema.String,
  id: Schema.String,
  key_id: Schema.String,
  type: Schema.String,
  comment: Schema.String,
  /** RFC 3339 UTC. */
  created_at: Schema.String
})
export type SshKeyRecord = typeof SshKeyRecord.Type

const sshKeys = tableOf("ssh_keys", SshKeyRecord, "fingerprint")

/** SSH keys, by which clients of SFTP log in as an API key (spec 10.6). Every change has a journal entry (`key:changed`). */
export class SshKeyRepo extends Context.Service<SshKeyRepo>()("muster/store/SshKeyRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => {
    const { find, put } = sshKeys.on(sql)
    return {
      all: sshKeys.read(sql`SELECT * FROM ssh_keys ORDER BY created_at, fingerprint`),
      of: (key_id: string) =>
        sshKeys.read(sql`SELECT * FROM ssh_keys WHERE key_id = ${key_id} ORDER BY created_at, fingerprint`),
      find,
      /** Stores a key in place of the one with its fingerprint. */
      put: (record: SshKeyRecord) => Effect.andThen(put(record), keysChanged(sql)),
      /** Returns whether the API key had the SSH key. */
      remove: Effect.fn("SshKeyRepo.remove")(function* (key_id: string, id: string): Writing<boolean> {
        const gone = yield* sql`DELETE FROM ssh_keys WHERE key_id = ${key_id} AND id = ${id} RETURNING id`
        if (gone.length > 0) yield* keysChanged(sql)
        return gone.length > 0
      })
    }
  })
}) {
  static readonly layer = Layer.effect(SshKeyRepo, SshKeyRepo.make)
}
