import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { AuditEntry } from "../../../contract/domain/AuditEntry.ts"
import type { AuditRecord } from "../../../contract/domain/AuditedRequest.ts"
import { auditIdAt } from "../../../contract/domain/idBytes.ts"
import { IntColumn, insertRows, JsonColumn, readRows } from "../sql/rows.ts"
import { allOf } from "../sql/Transaction.ts"

/** Entries that one statement reads and filters, so that a rare one does not hold the database. */
const SCAN = 5_000

/** Bytes of an entry in the tables beside its text, and of each object of a bulk action. */
const ROW_BYTES = 400
const OBJECT_BYTES = 150
/** Bytes that one statement deletes beyond its first entry, so that it does not hold the database. */
const PRUNED_BYTES = 4 * 1024 * 1024

interface AuditBounds {
  /** Milliseconds since the epoch: earlier entries are deleted. */
  readonly notBefore: number
  readonly maxBytes: number
}

/** Conditions of a list; all must hold. */
export interface AuditQuery {
  /** Milliseconds since the epoch. */
  readonly since?: number
  readonly until?: number
  /** Id or name of a key, or `cli`. */
  readonly actor?: string
  /** An action, or its first parts: `server.power` also selects `server.power.stop`. */
  readonly action?: string
  /** Id or name of an object, also of one among those of a bulk action. */
  readonly object?: string
  /** A status, or whether it is below 400. */
  readonly result?: number | "ok" | "refused"
  /** Only entries before the one with this id. */
  readonly after?: string
  readonly limit: number
}

/** Sorts after every id. */
const NEWEST = "g"

const readEntries = readRows(Schema.Struct({ entry: JsonColumn(AuditEntry) }))
const readBytes = readRows(Schema.Struct({ bytes: IntColumn }))
const readScan = readRows(Schema.Struct({ scanned: IntColumn, last: Schema.NullOr(Schema.String) }))

export const auditTable = (sql: SqlClient.SqlClient) => {
  const grow = (bytes: number) => sql`UPDATE counters SET value = value + ${bytes} WHERE name = 'audit_bytes'`

  const size: Effect.Effect<number, SqlError.SqlError> = Effect.map(
    readBytes(sql`SELECT value AS bytes FROM counters WHERE name = 'audit_bytes'`),
    ([row]) => row?.bytes ?? 0
  )

  /** Adds entries, or replaces them by their ids. */
  const put = Effect.fnUntraced(function* (records: ReadonlyArray<AuditRecord>) {
    if (records.length === 0) return
    // The last of an entry counts: a statement cannot change a row twice.
    const latest = [...new Map(records.map((record) => [record.entry.id, record])).values()]
    const rows = latest.map(({ entry, objects, text }) => ({
      id: entry.id,
      object_id: entry.object.id,
      object_name: entry.object.name ?? null,
      key_id: entry.actor.key_id,
      actor: entry.actor.name,
      action: entry.action,
      status: entry.result.status,
      entry: text,
      bytes: Buffer.byteLength(text) + ROW_BYTES + OBJECT_BYTES * objects.length
    }))
    const objects = records.flatMap(({ entry, objects }) =>
      objects.map(({ id, name = null }) => ({ entry_id: entry.id, object_id: id, object_name: name }))
    )
    yield* Effect.all(
      [
        insertRows(
          sql,
          "audit",
          rows,
          `ON CONFLICT (id) DO UPDATE SET object_id = excluded.object_id, object_name = excluded.object_name,
            action = excluded.action, status = excluded.status, entry = excluded.entry,
            bytes = audit.bytes + excluded.bytes`
        ),
        grow(rows.reduce((sum, { bytes }) => sum + bytes, 0)),
        insertRows(sql, "audit_objects", objects, "ON CONFLICT (entry_id, object_id) DO NOTHING")
      ],
      { concurrency: "unbounded", discard: true }
    )
  })

  const matching = ({ action, actor, result }: AuditQuery) =>
    allOf(sql, [
      actor !== undefined && sql`(key_id = ${actor} OR actor = ${actor})`,
      // The character after the dot ends the range of further parts.
      action !== undefined &&
        sql`(action = ${action} OR (action >= ${`${action}.`} AND action < ${`${action}/`}))`,
      result === "ok" && sql`status < 400`,
      result === "refused" && sql`status >= 400`,
      typeof result === "number" && sql`status = ${result}`
    ])

  /** The entries among which a page is searched, newest first. */
  const scan = ({ object, since }: AuditQuery, before: string) =>
    sql`SELECT * FROM audit WHERE ${allOf(sql, [
      sql`id < ${before}`,
      since !== undefined && sql`id >= ${auditIdAt(since)}`,
      object !== undefined &&
        sql`(object_id = ${object} OR object_name = ${object} OR id IN (
          SELECT entry_id FROM audit_objects WHERE object_id = ${object} OR object_name = ${object}))`
    ])} ORDER BY id DESC LIMIT ${SCAN}`

  /** Returns entries, newest first. Between two statements, other work runs. */
  const find = Effect.fnUntraced(function* (query: AuditQuery) {
    const { after = NEWEST, limit, until } = query
    let before = until === undefined ? NEWEST : auditIdAt(until + 1)
    if (after < before) before = after
    const found: Array<AuditEntry> = []
    while (found.length < limit) {
      const scanned = scan(query, before)
      found.push(
        ...(yield* readEntries(
          sql`SELECT entry FROM (${scanned}) AS page WHERE ${matching(query)} ORDER BY id DESC LIMIT ${limit - found.length}`
        )).map(({ entry }) => entry)
      )
      if (found.length >= limit) break
      const [page] = yield* readScan(
        sql`SELECT COUNT(*) AS scanned, MIN(id) AS last FROM (${scanned}) AS page`
      )
      if (page === undefined || page.last === null || page.scanned < SCAN) break
      before = page.last
      yield* Effect.yieldNow
    }
    return found
  })

  /** Deletes at most `most` entries that exceed a bound, the oldest; returns their number, 0 only if none is left. */
  const prune = Effect.fnUntraced(function* ({ maxBytes, notBefore }: AuditBounds, most: number) {
    const excess = (yield* size) - maxBytes
    const oldest = sql`SELECT id, bytes FROM audit ORDER BY id LIMIT ${most}`
    const deleted = yield* readBytes(
      sql`DELETE FROM audit WHERE id IN (
        SELECT id FROM (
          SELECT id, SUM(bytes) OVER (ORDER BY id) - bytes AS earlier FROM (${oldest}) AS oldest
        ) AS summed
        WHERE (id < ${auditIdAt(notBefore)} OR earlier < ${excess}) AND earlier < ${PRUNED_BYTES}
      ) RETURNING bytes`
    )
    if (deleted.length > 0) yield* grow(-deleted.reduce((sum, { bytes }) => sum + bytes, 0))
    return deleted.length
  })

  return { put, find, prune, size } as const
}

/** Entries of the audit log (spec 6.6). A write of an audited request adds its entry by itself. */
export class AuditRepo extends Context.Service<AuditRepo>()("muster/store/AuditRepo", {
  make: Effect.map(SqlClient.SqlClient, auditTable)
}) {
  static readonly layer = Layer.effect(AuditRepo, AuditRepo.make)
}
