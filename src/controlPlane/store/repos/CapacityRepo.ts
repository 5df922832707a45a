import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { Capacity, RuntimeKind } from "../../../contract/domain/Node.ts"
import { BooleanColumn, firstRow, IntColumn, JsonColumn } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

const Room = Schema.Struct({
  capacity: JsonColumn(Capacity),
  runtimes: JsonColumn(Schema.Array(RuntimeKind)),
  /** Connected and reachable. */
  connected: BooleanColumn,
  drained: BooleanColumn,
  /** Reservations of the node's servers, in bytes. */
  memory_bytes: IntColumn,
  disk_bytes: IntColumn,
  /** Whether the node has a server of the blueprint. */
  has_blueprint: BooleanColumn
})

/** The capacity of a node by its rows. */
export type AvailableCapacity = typeof Room.Type

const readRoom = firstRow(Room)
const readConnected = firstRow(Schema.Struct({ connected: BooleanColumn }))

/**
 * Checks by the rows whether a server fits on a node. The rows do not change until the transaction's commit, unlike the
 * memory of any process. One read, however many servers there are.
 */
export class CapacityRepo extends Context.Service<
  CapacityRepo,
  {
    /** None: there is no such node. */
    of(
      node_id: NodeId,
      blueprint_id: string
    ): Effect.Effect<Option.Option<AvailableCapacity>, SqlError.SqlError, Transaction>
    /** Whether a node is connected; false also for an unknown node. */
    isConnected(node_id: NodeId): Effect.Effect<boolean, SqlError.SqlError, Transaction>
  }
>()("muster/store/CapacityRepo") {
  static readonly layer = Layer.effect(
    CapacityRepo,
    Effect.map(SqlClient.SqlClient, (sql) =>
      CapacityRepo.of({
        of: Effect.fn("CapacityRepo.of")((node_id: NodeId, blueprint_id: string) =>
          readRoom(sql`SELECT capacity, runtimes, drained,
              CASE WHEN unreachable IS NULL THEN connected ELSE 0 END AS connected,
              COALESCE(memory_bytes, 0) AS memory_bytes, COALESCE(disk_bytes, 0) AS disk_bytes,
              CASE WHEN EXISTS (SELECT 1 FROM holdings
                WHERE holdings.node_id = nodes.id AND holdings.blueprint_id = ${blueprint_id})
                THEN 1 ELSE 0 END AS has_blueprint
            FROM nodes LEFT JOIN commitments ON commitments.node_id = nodes.id WHERE nodes.id = ${node_id}`)
        ),
        isConnected: Effect.fn("CapacityRepo.isConnected")((node_id: NodeId) =>
          Effect.map(
            readConnected(sql`SELECT connected FROM nodes WHERE id = ${node_id}`),
            (row) => Option.getOrUndefined(row)?.connected === true
          )
        )
      })
    )
  )
}
