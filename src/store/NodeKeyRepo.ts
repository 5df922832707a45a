import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { firstRow } from "./rows.ts"
import type { Transaction } from "./Transaction.ts"

/** Which node a key belongs to (node-protocol, "Daemon -> control plane"). */
export class NodeKeyRepo extends Context.Service<
  NodeKeyRepo,
  {
    /** Binds a key to the first node that asks; the node it belongs to from then on, undefined for an unknown key. */
    bind(key_id: string, node_id: string): Effect.Effect<string | undefined, SqlError.SqlError, Transaction>
    /** The node of a key; undefined when it is bound to none, or unknown. */
    nodeOf(key_id: string): Effect.Effect<string | undefined, SqlError.SqlError>
  }
>()("muster/store/NodeKeyRepo") {
  static readonly layer = Layer.effect(
    NodeKeyRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const nodeOf = (key_id: string) =>
        Effect.map(
          readNode(sql`SELECT node_id FROM api_keys WHERE id = ${key_id}`),
          (row) => Option.getOrUndefined(row)?.node_id ?? undefined
        )
      const bind = Effect.fn("NodeKeyRepo.bind")(function* (key_id: string, node_id: string) {
        yield* sql`UPDATE api_keys SET node_id = ${node_id} WHERE id = ${key_id} AND node_id IS NULL`
        return yield* nodeOf(key_id)
      })
      return NodeKeyRepo.of({ bind, nodeOf })
    })
  )
}

const readNode = firstRow(Schema.Struct({ node_id: Schema.NullOr(Schema.String) }))
