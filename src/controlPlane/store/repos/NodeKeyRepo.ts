import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { NodeId } from "../../../contract/domain/Id.ts"
import { firstRow, readRows } from "../sql/rows.ts"
import { keysChanged } from "../write/keysChanged.ts"
import type { Transaction } from "../write/Transaction.ts"

/** The key of a node. Times RFC 3339 UTC. */
export const NodeBinding = Schema.Struct({
  key_id: Schema.String,
  node_id: NodeId,
  expires_at: Schema.NullOr(Schema.String),
  revoked_at: Schema.NullOr(Schema.String)
})
export type NodeBinding = typeof NodeBinding.Type

/** The bindings of keys to nodes (spec 9.1). Every change is a change of the keys. */
export class NodeKeyRepo extends Context.Service<
  NodeKeyRepo,
  {
    /** Binds an unbound key to a node; returns the node of the key from then on; undefined: the key is unknown. */
    bind(key_id: string, node_id: NodeId): Effect.Effect<NodeId | undefined, SqlError.SqlError, Transaction>
    /** Returns the node of a key; undefined: it is unbound or unknown. */
    nodeOf(key_id: string): Effect.Effect<NodeId | undefined, SqlError.SqlError>
    /** Returns the keys of a node, with revoked and expired ones. */
    bindingsOf(node_id: NodeId): Effect.Effect<ReadonlyArray<NodeBinding>, SqlError.SqlError>
    /** The keys of all nodes. */
    readonly bindings: Effect.Effect<ReadonlyArray<NodeBinding>, SqlError.SqlError>
    /** Whether there is a record of the node. */
    isKnown(node_id: NodeId): Effect.Effect<boolean, SqlError.SqlError>
  }
>()("muster/store/NodeKeyRepo") {
  static readonly layer = Layer.effect(
    NodeKeyRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal("id AS key_id, node_id, expires_at, revoked_at")
      const nodeOf = (key_id: string) =>
        Effect.map(
          readNode(sql`SELECT node_id FROM api_keys WHERE id = ${key_id}`),
          (row) => Option.getOrUndefined(row)?.node_id ?? undefined
        )
      const bind = Effect.fn("NodeKeyRepo.bind")(function* (key_id: string, node_id: NodeId) {
        const rows = yield* sql`UPDATE api_keys SET node_id = ${node_id}
          WHERE id = ${key_id} AND node_id IS NULL RETURNING id`
        if (rows.length > 0) yield* keysChanged(sql)
        return yield* nodeOf(key_id)
      })
      return NodeKeyRepo.of({
        bind,
        nodeOf,
        bindingsOf: (node_id) =>
          readBindings(sql`SELECT ${columns} FROM api_keys WHERE node_id = ${node_id} ORDER BY id`),
        bindings: readBindings(sql`SELECT ${columns} FROM api_keys WHERE node_id IS NOT NULL ORDER BY id`),
        isKnown: (node_id) =>
          Effect.map(sql`SELECT id FROM nodes WHERE id = ${node_id}`, (rows) => rows.length > 0)
      })
    })
  )
}

const readNode = firstRow(Schema.Struct({ node_id: Schema.NullOr(NodeId) }))
const readBindings = readRows(NodeBinding)
