import { Context, Effect, Layer, type Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { Capacity, RuntimeKind } from "../../../contract/domain/Node.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import { BooleanColumn, firstRow, hasRows, IntColumn, JsonColumn } from "../sql/rows.ts"
import type { Write } from "../sql/Transaction.ts"

const Room = Schema.Struct({
  capacity: JsonColumn(Capacity),
  runtimes: JsonColumn(Schema.Array(RuntimeKind)),
  connected: BooleanColumn,
  drained: BooleanColumn,
  /** Reservations of the node's servers, in bytes. */
  memory_bytes: IntColumn,
  disk_bytes: IntColumn,
  /** Whether the node has a server of the blueprint. */
  has_blueprint: BooleanColumn
})

export type AvailableCapacity = typeof Room.Type

const readRoom = firstRow(Room)

/** Checks whether a server fits by rows, which do not change until the commit, with one read. */
export class CapacityRepo extends Context.Service<CapacityRepo>()("muster/store/CapacityRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    of: (node_id: NodeId, blueprint_id: string): Write<Option.Option<AvailableCapacity>> =>
      readRoom(sql`SELECT capacity, runtimes, drained,
          CASE WHEN unreachable IS NULL THEN connected ELSE 0 END AS connected,
          COALESCE(memory_bytes, 0) AS memory_bytes, COALESCE(disk_bytes, 0) AS disk_bytes,
          CASE WHEN EXISTS (SELECT 1 FROM reservations
            WHERE reservations.node_id = nodes.id AND reservations.blueprint_id = ${blueprint_id})
            THEN 1 ELSE 0 END AS has_blueprint
        FROM nodes CROSS JOIN (SELECT SUM(memory_bytes) AS memory_bytes, SUM(disk_bytes) AS disk_bytes
          FROM reservations WHERE node_id = ${node_id}) AS held WHERE nodes.id = ${node_id}`).pipe(
        inSpan("CapacityRepo.of")
      ),
    isConnected: (node_id: NodeId): Write<boolean> =>
      hasRows(sql`SELECT id FROM nodes WHERE id = ${node_id} AND connected = 1`)
  }))
}) {
  static readonly layer = Layer.effect(CapacityRepo, CapacityRepo.make)
}
