import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { Capacity } from "../../domain/Node.ts"
import { BooleanColumn, firstRow, IntColumn, JsonColumn } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

const Room = Schema.Struct({
  capacity: JsonColumn(Capacity),
  /** And it can be called. */
  connected: BooleanColumn,
  drained: BooleanColumn,
  /** What the servers there hold, in bytes. */
  memory_bytes: IntColumn,
  disk_bytes: IntColumn,
  /** Whether a server of the blueprint that was asked for is there. */
  has_blueprint: BooleanColumn
})

/** What the rows say of a node that a server is to be placed on. */
export type AvailableCapacity = typeof Room.Type

const readRoom = firstRow(Room)
const readConnected = firstRow(Schema.Struct({ connected: BooleanColumn }))

/**
 * Whether a server fits on a node, as the rows say it: they stay so until the transaction's commit, whatever a process
 * has in its memory. One read, however many servers there are.
 */
export class CapacityRepo extends Context.Service<
  CapacityRepo,
  {
    /** None: there is no such node any more. */
    of(
      node_id: string,
      blueprint_id: string
    ): Effect.Effect<Option.Option<AvailableCapacity>, SqlError.SqlError, Transaction>
    /** Whether a node is connected: false, too, for one that is not known. */
    isConnected(node_id: string): Effect.Effect<boolean, SqlError.SqlError, Transaction>
  }
>()("muster/store/CapacityRepo") {
  static readonly layer = Layer.effect(
    CapacityRepo,
    Effect.map(SqlClient.SqlClient, (sql) =>
      CapacityRepo.of({
        of: Effect.fn("CapacityRepo.of")((node_id: string, blueprint_id: string) =>
          readRoom(sql`SELECT capacity, drained,
              CASE WHEN unreachable IS NULL THEN connected ELSE 0 END AS connected,
              COALESCE(memory_bytes, 0) AS memory_bytes, COALESCE(disk_bytes, 0) AS disk_bytes,
              CASE WHEN EXISTS (SELECT 1 FROM holdings
                WHERE holdings.node_id = nodes.id AND holdings.blueprint_id = ${blueprint_id})
                THEN 1 ELSE 0 END AS has_blueprint
            FROM nodes LEFT JOIN commitments ON commitments.node_id = nodes.id WHERE nodes.id = ${node_id}`)
        ),
        isConnected: Effect.fn("CapacityRepo.isConnected")((node_id: string) =>
          Effect.map(
            readConnected(sql`SELECT connected FROM nodes WHERE id = ${node_id}`),
            (row) => Option.getOrUndefined(row)?.connected === true
          )
        )
      })
    )
  )
}
