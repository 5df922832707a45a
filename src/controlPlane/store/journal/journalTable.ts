/** The statements on the tables `journal` and its counter; nothing here knows of followers or commits. */
import { Clock, Effect, Predicate, Schema } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import {
  Change,
  type ChangedServer,
  type JournalBounds,
  type JournalEntry
} from "../../../contract/domain/Journal.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import { isPlainInstall } from "../sql/columns.ts"
import { IntColumn, insertRows, JsonColumn, readRows } from "../sql/rows.ts"

/** The columns of a {@link Change}. */
export interface ChangeRow {
  readonly topic: string
  /** Empty for a change that is about no server. */
  readonly server_id: string
  /** The payload, or the fields of a change that is about no server. */
  readonly payload: unknown
}

const topics: ReadonlySet<string> = new Set(Change.members.map(({ fields }) => fields.topic.literal))
const decode = Schema.decodeUnknownEffect(Change)
const encode = Schema.encodeEffect(Change)

/** Returns the columns of a change. */
export const changeRow = (change: Change): ChangeRow => {
  if ("server_id" in change) return change
  const { topic, ...payload } = change
  return { topic, server_id: "", payload }
}

/** A change that does not fit its topic is a defect. A payload without fields needs no schema. */
export const checkChange = (change: Change): Effect.Effect<void> => {
  const { payload, topic } = changeRow(change)
  const isPlain = !Predicate.isObject(payload) || (topic === "server:install" && isPlainInstall(payload))
  return isPlain ? Effect.void : Effect.asVoid(Effect.orDie(encode(change)))
}

/** Decodes a row. An internal topic of a newer version becomes `unknown:change`; the public topics never change. */
export const decodeChange = ({ payload, server_id, topic }: ChangeRow): Effect.Effect<Change> => {
  if (topic.includes(":") && !topics.has(topic)) return Effect.succeed({ topic: "unknown:change" })
  const fields = server_id === "" && Predicate.isObject(payload) ? payload : { server_id, payload }
  return Effect.orDie(decode({ topic, ...fields }))
}

const EntryRow = Schema.Struct({
  cursor: IntColumn,
  at: IntColumn,
  topic: Schema.String,
  server_id: Schema.String,
  blueprint_id: Schema.String,
  labels: Schema.NullOr(JsonColumn(Labels)),
  payload: JsonColumn(Schema.Json)
})
const readEntries = readRows(EntryRow)
const readBounds = readRows(Schema.Struct({ newest: IntColumn, oldest: Schema.NullOr(IntColumn) }))
const readCursors = readRows(Schema.Struct({ cursor: IntColumn }))
const readValues = readRows(Schema.Struct({ value: IntColumn }))

/** A change that waits for its cursor. */
export interface PendingChange extends ChangedServer {
  readonly change: Change
}

export const journalTable = (sql: SqlClient.SqlClient) => {
  /** The newest cursor. A write transaction with the write lock has the next ones to itself. */
  const newest: Effect.Effect<number, SqlError.SqlError> = Effect.flatMap(
    readValues(sql`SELECT value FROM counters WHERE name = 'journal'`),
    ([counter]) =>
      counter === undefined
        ? Effect.die(new Error("the counter of the journal is missing"))
        : Effect.succeed(counter.value)
  )

  const numbered = (
    changes: ReadonlyArray<PendingChange>,
    after: number
  ): Effect.Effect<ReadonlyArray<JournalEntry>> =>
    Effect.map(Clock.currentTimeMillis, (at) =>
      changes.map((pending, index) => ({ cursor: after + 1 + index, at, ...pending }))
    )

  /** Appends gapless entries. `notifyClause` extends the statement of the counter. */
  const append = Effect.fnUntraced(function* (
    entries: ReadonlyArray<JournalEntry>,
    notifyClause: Statement.Fragment = sql.literal("")
  ) {
    const last = entries.at(-1)
    if (last === undefined) return
    const rows = entries.map(({ change, labels, ...entry }) => {
      const { payload, server_id, topic } = changeRow(change)
      const texts = {
        labels: labels === undefined ? null : JSON.stringify(labels),
        payload: JSON.stringify(payload)
      }
      return { ...entry, topic, server_id, ...texts }
    })
    yield* Effect.all(
      [
        sql`UPDATE counters SET value = ${last.cursor} WHERE name = 'journal' RETURNING value ${notifyClause}`,
        insertRows(sql, "journal", rows)
      ],
      { concurrency: "unbounded", discard: true }
    )
  })

  /** At most `limit` entries with `after < cursor <= upTo`, oldest first. */
  const page = Effect.fnUntraced(function* (after: number, upTo: number, limit: number) {
    const rows = yield* readEntries(
      sql`SELECT cursor, at, topic, server_id, blueprint_id, labels, payload FROM journal
          WHERE cursor > ${after} AND cursor <= ${upTo} ORDER BY cursor LIMIT ${limit}`
    )
    return yield* Effect.forEach(rows, ({ cursor, at, blueprint_id, labels, ...row }) =>
      Effect.map(decodeChange(row), (change) => ({
        cursor,
        at,
        blueprint_id,
        ...(labels === null ? {} : { labels }),
        change
      }))
    )
  })

  const bounds: Effect.Effect<JournalBounds, SqlError.SqlError> = Effect.flatMap(
    readBounds(
      sql`SELECT value AS newest, (SELECT MIN(cursor) FROM journal) AS oldest FROM counters WHERE name = 'journal'`
    ),
    ([row]) =>
      row === undefined
        ? Effect.die(new Error("the counter of the journal is missing"))
        : Effect.succeed({ newest: row.newest, oldest: row.oldest ?? row.newest + 1 })
  )

  /** Returns the cursor up to which entries go: older than `notBefore`, or beyond `keep`, without a gap. */
  const expired = Effect.fnUntraced(function* (notBefore: number, keep: number) {
    const { newest } = yield* bounds
    const [young] = yield* readCursors(
      sql`SELECT cursor FROM journal WHERE at >= ${notBefore} ORDER BY cursor LIMIT 1`
    )
    return Math.max(young === undefined ? newest : young.cursor - 1, newest - keep)
  })

  const deleteUpTo = (cursor: number) => Effect.asVoid(sql`DELETE FROM journal WHERE cursor <= ${cursor}`)

  return { append, bounds, deleteUpTo, expired, newest, numbered, page } as const
}
