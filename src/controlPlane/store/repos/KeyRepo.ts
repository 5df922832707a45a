import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { NodeId } from "../../../contract/domain/Id.ts"
import { KeyGrant, keyGrantFields } from "../../../contract/domain/Key.ts"
import { firstRow, hasRows, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import { keysChanged, type Read, type Writing } from "../sql/Transaction.ts"

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

/** The key of a node. Times RFC 3339 UTC. */
export const NodeBinding = Schema.Struct({
  key_id: Schema.String,
  node_id: NodeId,
  expires_at: Schema.NullOr(Schema.String),
  revoked_at: Schema.NullOr(Schema.String)
})
export type NodeBinding = typeof NodeBinding.Type

const { created_at, expires_at, hash, id, name, revoked_at } = KeyRecord.fields

const KeyRow = Schema.Struct({
  id,
  name,
  hash,
  created_at,
  expires_at,
  revoked_at,
  access: JsonColumn(KeyGrant),
  /** The name of the shared quota, by which servers are counted. */
  quota: Schema.NullOr(Schema.String)
})
const encode = writeRow(KeyRow)
const readAll = readRows(KeyRow)
const readVersion = firstRow(Schema.Struct({ value: IntColumn }))
const readNode = firstRow(Schema.Struct({ node_id: Schema.NullOr(NodeId) }))
const readBindings = readRows(NodeBinding)

const rowOf = ({ created_at, expires_at, hash, id, name, revoked_at, ...access }: KeyRecord) => ({
  ...{ id, name, hash, created_at, expires_at, revoked_at, access },
  quota: access.quota ?? null
})

const recordOf = ({ access, quota: _, ...record }: typeof KeyRow.Type): KeyRecord => ({
  ...record,
  ...access
})

/** Records of API keys, and their bindings to nodes (spec 9.1). Every change has a journal entry (`key:changed`). */
export class KeyRepo extends Context.Service<KeyRepo>()("muster/store/KeyRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const select = sql`SELECT id, name, access, quota, hash, created_at, expires_at, revoked_at FROM api_keys`
    const selectBindings = sql`SELECT id AS key_id, node_id, expires_at, revoked_at FROM api_keys`

    const announced = Effect.fnUntraced(function* (update: Read<ReadonlyArray<unknown>>): Writing<boolean> {
      const isChanged = (yield* update).length > 0
      if (isChanged) yield* keysChanged(sql)
      return isChanged
    })

    const nodeOf = (key_id: string) =>
      Effect.map(
        readNode(sql`SELECT node_id FROM api_keys WHERE id = ${key_id}`),
        (row) => row?.node_id ?? undefined
      )

    return {
      insert: Effect.fn("KeyRepo.insert")(function* (record: KeyRecord): Writing {
        yield* sql`INSERT INTO api_keys ${sql.insert(yield* encode(rowOf(record)))}`
        yield* keysChanged(sql)
      }),
      /** Returns false if there is no such key, or it is revoked already. */
      revoke: (id: string, at: string) =>
        announced(
          sql`UPDATE api_keys SET revoked_at = ${at} WHERE id = ${id} AND revoked_at IS NULL RETURNING id`
        ),
      all: Effect.map(readAll(sql`${select} ORDER BY created_at, id`), (rows) => rows.map(recordOf)),
      find: (id: string) =>
        Effect.map(readAll(sql`${select} WHERE id = ${id}`), ([row]) =>
          row === undefined ? undefined : recordOf(row)
        ),
      /** Every change of keys by any process changes this number: a cache of `all` misses no revocation. */
      version: Effect.map(
        readVersion(sql`SELECT value FROM counters WHERE name = 'keys'`),
        (counter) => counter?.value ?? 0
      ),
      /** Binds an unbound key to a node; returns the node of the key from then on, unless the key is unknown. */
      bind: (key_id: string, node_id: NodeId) =>
        Effect.andThen(
          announced(
            sql`UPDATE api_keys SET node_id = ${node_id} WHERE id = ${key_id} AND node_id IS NULL RETURNING id`
          ),
          nodeOf(key_id)
        ),
      nodeOf,
      /** Whether there is a record of the node. */
      isKnown: (node_id: NodeId) => hasRows(sql`SELECT id FROM nodes WHERE id = ${node_id}`),
      bindingsOf: (node_id: NodeId) =>
        readBindings(sql`${selectBindings} WHERE node_id = ${node_id} ORDER BY id`),
      bindings: readBindings(sql`${selectBindings} WHERE node_id IS NOT NULL ORDER BY id`)
    }
  })
}) {
  static readonly layer = Layer.effect(KeyRepo, KeyRepo.make)
}
