import { Context, Duration, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import { diskLimitBytes } from "../../../contract/domain/Limits.ts"
import { reservedLimits, ServerRecord } from "../../../contract/domain/Server.ts"
import { IntColumn, JsonColumn, newestFirst, readRows, tableOf, upsertRows, writeRow } from "../sql/rows.ts"
import { changes, type Writing, write } from "../sql/Transaction.ts"
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

/** The time for which deleted servers are kept, in ms; 0: they are not. The service sets it. */
export const KeepDeleted = Context.Reference<number>("muster/store/KeepDeleted", { defaultValue: () => 0 })

/** A deleted server whose files its node keeps (spec 3.19). */
export const KeptServer = Schema.Struct({
  id: ServerId,
  node_id: NodeId,
  /** Id of the key that created it. */
  created_by: Schema.NullOr(Schema.String),
  /** The record at its deletion. */
  record: JsonColumn(ServerRecord),
  /** The disk that was reserved for it. */
  disk_bytes: IntColumn,
  /** Milliseconds since the epoch. */
  deleted_at: IntColumn,
  purge_at: IntColumn
})
export type KeptServer = typeof KeptServer.Type

const encodeRecord = writeRow(JsonColumn(ServerRecord))
const keptServers = tableOf("kept_servers", KeptServer)
const readUse = readRows(Schema.Struct({ node_id: NodeId, disk_bytes: IntColumn }))
const readIds = readRows(Schema.Struct({ id: ServerId }))

/** Deleted servers that can be undeleted. */
export class KeptServerRepo extends Context.Service<KeptServerRepo>()("muster/store/KeptServerRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const keep = yield* KeepDeleted

    const { find, put } = keptServers.on(sql)

    return {
      find,
      /** Keeps the record of a server that is deleted now. @param now milliseconds since the epoch */
      add: (record: ServerRecord, now: number) => {
        const { created_by = null, id, node_id } = record
        const disk_bytes = diskLimitBytes(reservedLimits(record))
        return put({ id, node_id, created_by, record, disk_bytes, deleted_at: now, purge_at: now + keep })
      },
      /** Returns some, newest deletion first, after the one with an id; nothing if there is none with it. */
      page: newestFirst(sql, "kept_servers", keptServers.read, "deleted_at"),
      /** Returns the servers that are to be purged by a time, in ms since the epoch. */
      due: (now: number, limit: number) =>
        keptServers.read(
          sql`SELECT * FROM kept_servers WHERE purge_at <= ${now} ORDER BY purge_at, id LIMIT ${limit}`
        ),
      /** The disk that the kept servers of each node may use. */
      diskByNode: readUse(
        sql`SELECT node_id, SUM(disk_bytes) AS disk_bytes FROM kept_servers GROUP BY node_id ORDER BY node_id`
      ),
      /** Returns the oldest deletions that exceed a number of kept servers of one creator on one node. */
      surplus: (most: number, limit: number) =>
        keptServers.read(sql`SELECT * FROM (
            SELECT kept_servers.*, ROW_NUMBER() OVER (
              PARTITION BY node_id, created_by ORDER BY deleted_at DESC, id DESC) AS place
            FROM kept_servers) AS placed
          WHERE place > ${most} ORDER BY deleted_at, id LIMIT ${limit}`),
      /** Returns the oldest deletion of a node with a disk limit: of some creators, of the next ones, or else of any. */
      oldestOn: (node_id: NodeId, creators: ReadonlyArray<ReadonlySet<string>>) => {
        const isOf = creators.map((by) => sql`CASE WHEN ${sql.in("created_by", [...by])} THEN 0 ELSE 1 END`)
        return keptServers.first(sql`SELECT * FROM kept_servers WHERE node_id = ${node_id} AND disk_bytes > 0
          ORDER BY ${sql.csv([...isOf, "deleted_at", "id"])} LIMIT 1`)
      },
      idsOn: (node_id: NodeId) =>
        Effect.map(readIds(sql`SELECT id FROM kept_servers WHERE node_id = ${node_id}`), (rows) =>
          rows.map(({ id }) => id)
        ),
      /** Gives a server another record, unless it is not kept any more, or was given one meanwhile; returns whether it was. */
      move: Effect.fnUntraced(function* (
        { id, record: before }: KeptServer,
        record: ServerRecord
      ): Writing<boolean> {
        // Locks the row.
        const now = yield* keptServers.first(
          sql`UPDATE kept_servers SET id = id WHERE id = ${id} RETURNING *`
        )
        if (now?.record.last_sequence !== before.last_sequence) return false
        return yield* changes(
          sql`UPDATE kept_servers SET record = ${yield* encodeRecord(record)} WHERE id = ${id} RETURNING id`
        )
      }),
      /** Removes a server and returns it, unless it is not kept any more. */
      take: (id: ServerId) => keptServers.first(sql`DELETE FROM kept_servers WHERE id = ${id} RETURNING *`),
      /** Returns false if the server is not kept any more. */
      remove: (id: ServerId) => changes(sql`DELETE FROM kept_servers WHERE id = ${id} RETURNING id`)
    }
  })
}) {
  static readonly layer = Layer.effect(KeptServerRepo, KeptServerRepo.make)
}
