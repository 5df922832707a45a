import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { firstRow, readRows } from "../sql/rows.ts"
import { keysChanged, type Writing } from "../sql/Transaction.ts"

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

const readAll = readRows(SshKeyRecord)
const readFirst = firstRow(SshKeyRecord)

/** SSH keys, by which clients of SFTP log in as an API key (spec 10.6). Every change has a journal entry (`key:changed`). */
export class SshKeyRepo extends Context.Service<SshKeyRepo>()("muster/store/SshKeyRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => {
    const select = sql`SELECT fingerprint, id, key_id, type, comment, created_at FROM ssh_keys`
    return {
      all: readAll(sql`${select} ORDER BY created_at, fingerprint`),
      of: (key_id: string) =>
        readAll(sql`${select} WHERE key_id = ${key_id} ORDER BY created_at, fingerprint`),
      find: (fingerprint: string) =>
        Effect.map(readFirst(sql`${select} WHERE fingerprint = ${fingerprint}`), Option.getOrUndefined),
      /** Stores a key in place of the one with its fingerprint. */
      put: Effect.fn("SshKeyRepo.put")(function* (record: SshKeyRecord): Writing {
        yield* sql`DELETE FROM ssh_keys WHERE fingerprint = ${record.fingerprint}`
        yield* sql`INSERT INTO ssh_keys ${sql.insert({ ...record })}`
        yield* keysChanged(sql)
      }),
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
