import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import {
  BackupCheck,
  BackupFigures,
  type BackupPatch,
  BackupRecord,
  BackupSchedule,
  shownBackup
} from "../../../contract/domain/Backup.ts"
import { TargetSettings } from "../../../contract/domain/BackupTarget.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import type { ChangedServer } from "../../../contract/domain/Journal.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import { TimeText } from "../../../contract/domain/nowText.ts"
import type { OperationRecord } from "../../../contract/domain/Operation.ts"
import { Overrides } from "../../../contract/domain/Overrides.ts"
import { jsonText } from "../sql/Backend.ts"
import {
  BooleanColumn,
  countOf,
  equalTo,
  firstRow,
  IntColumn,
  JsonColumn,
  newestFirst,
  type RowPage,
  readRows,
  tableOf,
  writeRow
} from "../sql/rows.ts"
import { append, type Writing, write } from "../sql/Transaction.ts"

const backups = tableOf(
  "backups",
  Schema.Struct({
    ...BackupRecord.fields,
    labels: JsonColumn(Labels),
    server_labels: JsonColumn(Labels),
    overrides: JsonColumn(Schema.toType(Overrides)),
    figures: Schema.NullOr(JsonColumn(BackupFigures)),
    pinned: BooleanColumn,
    drill: Schema.NullOr(JsonColumn(BackupCheck)),
    verified: Schema.NullOr(JsonColumn(BackupCheck)),
    schedule: Schema.NullOr(JsonColumn(BackupSchedule))
  })
)
const encodeFigures = writeRow(JsonColumn(BackupFigures))
const encodeCheck = writeRow(JsonColumn(BackupCheck))
const encodeLabels = writeRow(JsonColumn(Labels))
const readTotals = readRows(
  Schema.Struct({ blueprint_id: Schema.String, newest: Schema.String, stored_bytes: IntColumn })
)

const readReader = firstRow(Schema.Struct({ id: Schema.String, kind: Schema.String }))

export interface BackupPage extends RowPage {
  readonly server_id?: string
  readonly blueprint_id?: string
  readonly state?: string
  readonly target?: string
  /** Only backups that were begun at this time or later (RFC 3339). */
  readonly since?: string
}

const announce = (record: BackupRecord, server: ChangedServer | undefined) =>
  append({ topic: "server:backup", server_id: record.server_id, payload: shownBackup(record) }, server)

/** Updates a row and announces it; returns it, unless no row has changed. */
const changed = (update: Statement.Statement<unknown>, server: ChangedServer | undefined) =>
  Effect.tap(backups.first(update), (record) =>
    record === undefined ? Effect.void : announce(record, server)
  )

const unfinished = (sql: SqlClient.SqlClient) => sql`state IN ('queued', 'quiescing', 'copying')`

/** Makes the backup of an operation failed that ends without it, as part of that write. */
export const failBackupOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { finished_at, id, kind, reason, state }: OperationRecord,
  server: ChangedServer | undefined
): Writing {
  if ((kind !== "backup.create" && kind !== "backup.restore") || state === "done") return
  yield* changed(
    sql`UPDATE backups SET ${sql.update({ state: "failed", reason, finished_at })}
      WHERE operation_id = ${id} AND ${unfinished(sql)} RETURNING *`,
    server
  )
})

/** Backups (spec 12.1); they outlive their servers. Each change of a state is a journal entry of the same write. */
export class BackupRepo extends Context.Service<BackupRepo>()("muster/store/BackupRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const page = newestFirst(sql, "backups", backups.read)
    const { find, insert } = backups.on(sql)
    const backupRead = jsonText(sql, "request", "backup_id")
    const readers = sql`operations WHERE finished_at IS NULL
      AND kind IN ('backup.restore', 'backup.drill', 'backup.verify')`
    const isGood = sql`state = 'done' AND ${jsonText(sql, "verified", "reason")} IS NULL`
    const isUnread = sql`id NOT IN (SELECT ${backupRead} FROM ${readers})`
    const noted =
      (column: "drill" | "verified") =>
      (id: string, result: BackupCheck, server: ChangedServer | undefined) =>
        Effect.flatMap(encodeCheck(result), (text) =>
          changed(
            sql`UPDATE backups SET ${sql.update({ [column]: text })} WHERE id = ${id} RETURNING *`,
            server
          )
        )
    return {
      insert: (record: BackupRecord, server: ChangedServer | undefined) =>
        Effect.andThen(insert(record), announce(record, server)),
      find,
      countOf: (server_id: ServerId) =>
        countOf(sql`SELECT COUNT(*) AS count FROM backups WHERE server_id = ${server_id}`),
      /** Returns, for each blueprint with good backups, the time of the newest one and the bytes that all take. */
      byBlueprint: readTotals(
        sql`SELECT blueprint_id, MAX(created_at) AS newest,
            CAST(SUM(CAST(${jsonText(sql, "figures", "stored_bytes")} AS BIGINT)) AS BIGINT) AS stored_bytes
          FROM backups WHERE ${isGood} GROUP BY blueprint_id`
      ),
      /** An unfinished operation that reads a backup, if there is one. */
      readerOf: (id: string) =>
        readReader(sql`SELECT id, kind FROM ${readers} AND ${backupRead} = ${id} LIMIT 1`),
      /** The good backups of a server that no unfinished operation reads. Damaged ones are not good. */
      unreadOf: (server_id: ServerId) =>
        backups.read(sql`SELECT * FROM backups WHERE server_id = ${server_id} AND ${isGood} AND ${isUnread}`),
      /** Returns backups, newest first, unless no backup has the id `after`. */
      list: ({ after, limit, since, ...equal }: BackupPage) =>
        page({ limit, after }, [...equalTo(sql, equal), since !== undefined && sql`created_at >= ${since}`]),
      /** Notes that the node of a server works on the backup; nothing if the backup has ended. */
      underway: (
        id: string,
        state: "quiescing" | "copying",
        node_id: string,
        server: ChangedServer | undefined
      ) =>
        changed(
          sql`UPDATE backups SET ${sql.update({ state, node_id })}
            WHERE id = ${id} AND ${unfinished(sql)} RETURNING *`,
          server
        ),
      /** Lets nothing finish a backup whose files are removed next; returns nothing if it has ended. */
      unfinish: (id: string) =>
        backups.first(
          sql`UPDATE backups SET state = 'queued' WHERE id = ${id} AND ${unfinished(sql)} RETURNING *`
        ),
      /** Makes a backup good that is underway. */
      finish: (
        id: string,
        done: BackupFigures,
        { finished_at, reason }: { readonly finished_at: string; readonly reason: string | null },
        server: ChangedServer | undefined
      ) =>
        Effect.flatMap(encodeFigures(done), (figures) =>
          changed(
            sql`UPDATE backups SET ${sql.update({ state: "done", figures, finished_at, reason })}
              WHERE id = ${id} AND state IN ('quiescing', 'copying') RETURNING *`,
            server
          )
        ),
      /** Notes the result of a drill; nothing if the backup was deleted. */
      drilled: noted("drill"),
      /** Notes the result of a verification; nothing if the backup was deleted. */
      verified: noted("verified"),
      patch: Effect.fn("BackupRepo.patch")(function* (
        id: string,
        {
          labels,
          ...change
        }: Pick<BackupPatch, "labels" | "name" | "pinned"> & {
          readonly expires_at?: string | null
        },
        server: ChangedServer | undefined
      ): Writing<BackupRecord | undefined> {
        const { pinned, ...texts } = change
        const set = {
          ...texts,
          ...(pinned === undefined ? {} : { pinned: pinned ? 1 : 0 }),
          ...(labels === undefined ? {} : { labels: yield* encodeLabels(labels) })
        }
        if (Object.keys(set).length === 0) return yield* find(id)
        return yield* changed(sql`UPDATE backups SET ${sql.update(set)} WHERE id = ${id} RETURNING *`, server)
      }),
      /** Notes that an ended backup is to be removed; nothing if it has not ended. */
      deleting: (id: string, server: ChangedServer | undefined) =>
        changed(
          sql`UPDATE backups SET state = 'deleting'
            WHERE id = ${id} AND state IN ('done', 'failed', 'deleting') RETURNING *`,
          server
        ),
      remove: (id: string) => write(sql`DELETE FROM backups WHERE id = ${id} AND state = 'deleting'`),
      /** Backups that are to be removed at a time (RFC 3339): deleted ones, and expired ones that are neither pinned nor read. */
      due: (now: string, limit: number) =>
        backups.read(sql`SELECT * FROM backups WHERE state = 'deleting'
          OR (expires_at <= ${now} AND pinned = 0 AND state IN ('done', 'failed') AND ${isUnread})
          ORDER BY created_at, id LIMIT ${limit}`)
    }
  })
}) {
  static readonly layer = Layer.effect(BackupRepo, BackupRepo.make)
}

/** A target that a caller has defined. */
export const BackupTargetRecord = Schema.Struct({
  id: Schema.String,
  created_at: TimeText,
  settings: JsonColumn(TargetSettings),
  /** Its secret, encrypted; null if it has none. */
  sealed: Schema.NullOr(Schema.String)
})
export type BackupTargetRecord = typeof BackupTargetRecord.Type

const targets = tableOf("backup_targets", BackupTargetRecord)

/** Targets of backups (spec 12.6). */
export class BackupTargetRepo extends Context.Service<BackupTargetRepo>()("muster/store/BackupTargetRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    ...targets.on(sql),
    all: targets.read(sql`SELECT * FROM backup_targets ORDER BY id`),
    /** Number of backups in a target. */
    backupsIn: (id: string) => countOf(sql`SELECT COUNT(*) AS count FROM backups WHERE target = ${id}`)
  }))
}) {
  static readonly layer = Layer.effect(BackupTargetRepo, BackupTargetRepo.make)
}
