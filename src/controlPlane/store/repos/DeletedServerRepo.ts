import { Context, Duration, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { IntColumn, JsonColumn, readRows } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"
import { encodeLabels } from "./serverRows.ts"

/** Milliseconds for which the end of a server is kept. */
const KEPT = Duration.toMillis("30 days")
/** Ends that are kept at most. */
const MOST = 100_000
/** Servers of one name that a caller is told about. */
const OF_NAME = 100

const DeletedServer = Schema.Struct({
  id: ServerId,
  blueprint_id: Schema.String,
  labels: JsonColumn(Labels),
  /** Milliseconds since the epoch. */
  deleted_at: IntColumn,
  reason: Schema.String
})
export type DeletedServer = typeof DeletedServer.Type
const readDeleted = readRows(DeletedServer)

/** The ends of servers that were deleted in the last 30 days, the newest 100,000 at most. */
export class DeletedServerRepo extends Context.Service<
  DeletedServerRepo,
  {
    add(
      record: ServerRecord,
      end: Pick<DeletedServer, "deleted_at" | "reason">
    ): Effect.Effect<void, SqlError.SqlError, Transaction>
    /** Returns the deleted servers with this id or name, newest first. */
    named(text: string): Effect.Effect<ReadonlyArray<DeletedServer>, SqlError.SqlError>
    /** @param now milliseconds since the epoch */
    prune(now: number): Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/DeletedServerRepo") {
  static readonly layer = Layer.effect(
    DeletedServerRepo,
    Effect.map(SqlClient.SqlClient, (sql) =>
      DeletedServerRepo.of({
        add: Effect.fnUntraced(function* ({ blueprint_id, id, labels, name = null }, end) {
          const row = { id, name, blueprint_id, labels: yield* encodeLabels(labels), ...end }
          // The server of a restored database may end once more.
          yield* sql`INSERT INTO deleted_servers ${sql.insert(row)} ON CONFLICT (id) DO UPDATE SET
            deleted_at = excluded.deleted_at, reason = excluded.reason`
        }),
        named: (text) =>
          readDeleted(
            sql`SELECT id, blueprint_id, labels, deleted_at, reason FROM deleted_servers
              WHERE id = ${text} OR name = ${text} ORDER BY deleted_at DESC LIMIT ${OF_NAME}`
          ),
        prune: (now) =>
          Effect.asVoid(
            sql`DELETE FROM deleted_servers WHERE deleted_at < ${now - KEPT} OR deleted_at <
              (SELECT deleted_at FROM deleted_servers ORDER BY deleted_at DESC LIMIT 1 OFFSET ${MOST - 1})`
          )
      })
    )
  )
}
