import { Context, Duration, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { upsertRows } from "../sql/insertRows.ts"
import { IntColumn, JsonColumn, readRows } from "../sql/rows.ts"
import { type Writing, write } from "../sql/Transaction.ts"
import { encodeLabels } from "./serverRows.ts"

const KEPT = Duration.toMillis("30 days")
const MOST = 100_000
const OF_NAME = 100

const DeletedServer = Schema.Struct({
  id: ServerId,
  blueprint_id: Schema.String,
  labels: JsonColumn(Labels),
  /** Milliseconds since the epoch. */
  deleted_at: IntColumn,
  reason: Schema.String
})
type DeletedServer = typeof DeletedServer.Type
const readDeleted = readRows(DeletedServer)

/** The ends of servers that were deleted in the last 30 days, the newest 100,000 at most. */
export class DeletedServerRepo extends Context.Service<DeletedServerRepo>()(
  "muster/store/DeletedServerRepo",
  {
    make: Effect.map(SqlClient.SqlClient, (sql) => ({
      add: Effect.fnUntraced(function* (
        { blueprint_id, id, labels, name }: ServerRecord,
        end: Pick<DeletedServer, "deleted_at" | "reason">
      ): Writing {
        const row = { id, name: name ?? null, blueprint_id, labels: yield* encodeLabels(labels), ...end }
        // The server of a restored database may end once more.
        yield* upsertRows(sql, "deleted_servers", "id", [row])
      }),
      /** Forgets the end of a server that is undeleted. */
      remove: (id: ServerId) => write(sql`DELETE FROM deleted_servers WHERE id = ${id}`),
      /** Returns the deleted servers with this id or name, newest first. */
      named: (text: string) =>
        readDeleted(
          sql`SELECT id, blueprint_id, labels, deleted_at, reason FROM deleted_servers
          WHERE id = ${text} OR name = ${text} ORDER BY deleted_at DESC LIMIT ${OF_NAME}`
        ),
      /** @param now milliseconds since the epoch */
      prune: (now: number) =>
        write(
          sql`DELETE FROM deleted_servers WHERE deleted_at < ${now - KEPT} OR deleted_at <
          (SELECT deleted_at FROM deleted_servers ORDER BY deleted_at DESC LIMIT 1 OFFSET ${MOST - 1})`
        )
    }))
  }
) {
  static readonly layer = Layer.effect(DeletedServerRepo, DeletedServerRepo.make)
}
