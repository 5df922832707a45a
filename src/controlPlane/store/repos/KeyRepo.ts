import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { KeyGrant, keyGrantFields } from "../../../contract/domain/Key.ts"
import { firstRow, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import { keysChanged } from "../write/keysChanged.ts"
import type { Transaction } from "../write/Transaction.ts"

/** The record of an API key: the SHA-256 in hex, never the key. Times RFC 3339 UTC. */
export const KeyRecord = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  ...keyGrantFields,
  hash: Schema.String,
  created_at: Schema.String,
  expires_at: Schema.NullOr(Schema.String),
  revoked_at: Schema.NullOr(Schema.String)
})
export type KeyRecord = typeof KeyRecord.Type

/** Records of API keys. Every change has a journal entry (`key:changed`). */
export class KeyRepo extends Context.Service<
  KeyRepo,
  {
    insert(record: KeyRecord): Effect.Effect<void, SqlError.SqlError, Transaction>
    /** False: there is no such key, or it is revoked already. */
    revoke(id: string, at: string): Effect.Effect<boolean, SqlError.SqlError, Transaction>
    readonly all: Effect.Effect<ReadonlyArray<KeyRecord>, SqlError.SqlError>
    /** Finds a key, also a revoked one. */
    find(id: string): Effect.Effect<Option.Option<KeyRecord>, SqlError.SqlError>
    /**
     * A number that changes with every change of the keys by any process: a cheap check for a cache of `all` that
     * misses no revocation.
     */
    readonly version: Effect.Effect<number, SqlError.SqlError>
  }
>()("muster/store/KeyRepo") {
  static readonly layer = Layer.effect(
    KeyRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const insert = Effect.fn("KeyRepo.insert")(function* (record: KeyRecord) {
        yield* sql`INSERT INTO api_keys ${sql.insert(yield* encode(rowOf(record)))}`
        yield* keysChanged(sql)
      })
      const revoke = Effect.fn("KeyRepo.revoke")(function* (id: string, at: string) {
        const rows = yield* sql`UPDATE api_keys SET revoked_at = ${at}
          WHERE id = ${id} AND revoked_at IS NULL RETURNING id`
        if (rows.length === 0) return false
        yield* keysChanged(sql)
        return true
      })
      const select = sql`SELECT id, name, access, quota, hash, created_at, expires_at, revoked_at FROM api_keys`
      const all = Effect.map(readAll(sql`${select} ORDER BY created_at, id`), (rows) => rows.map(recordOf))
      const find = (id: string) =>
        Effect.map(readAll(sql`${select} WHERE id = ${id}`), ([row]) =>
          Option.map(Option.fromUndefinedOr(row), recordOf)
        )
      const version = Effect.map(
        readVersion(sql`SELECT value FROM counters WHERE name = 'keys'`),
        Option.match({ onNone: () => 0, onSome: (counter) => counter.value })
      )
      return KeyRepo.of({ insert, revoke, all, find, version })
    })
  )
}

const { created_at, expires_at, hash, id, name, revoked_at } = KeyRecord.fields

const KeyRow = Schema.Struct({
  id,
  name,
  hash,
  created_at,
  expires_at,
  revoked_at,
  /** The scope, rights and limits. */
  access: JsonColumn(KeyGrant),
  /** The name of the shared quota, by which servers are counted. */
  quota: Schema.NullOr(Schema.String)
})
const encode = writeRow(KeyRow)
const readAll = readRows(KeyRow)

const rowOf = ({ created_at, expires_at, hash, id, name, revoked_at, ...access }: KeyRecord) => ({
  ...{ id, name, hash, created_at, expires_at, revoked_at, access },
  quota: access.quota ?? null
})

const recordOf = ({ access, quota: _, ...record }: typeof KeyRow.Type): KeyRecord => ({
  ...record,
  ...access
})

const readVersion = firstRow(Schema.Struct({ value: IntColumn }))
