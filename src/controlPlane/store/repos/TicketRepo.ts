import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { KeyScope } from "../../../contract/domain/Key.ts"
import { databaseMillis } from "../sql/Backend.ts"
import { countOf, firstRow, IntColumn } from "../sql/rows.ts"
import { append, type Read, type Write, type Writing, write } from "../sql/Transaction.ts"

/** Expired tickets that one insertion removes: more than are added, and few enough to be quick. */
const CLEARED = 100

export interface TicketHolder {
  readonly key_id: string
  readonly name: string
  readonly scope: typeof KeyScope.Type
}

/** The bounds of secrets that a key may ask for, and that expire. */
export interface TicketLimits {
  /** Milliseconds. */
  readonly lifetime: number
  readonly most: number
  readonly mostOfKey: number
}

export interface TicketStream {
  /** Hash of the request without its cursor. */
  readonly stream: string
  /** Cursor after which the stream begins. */
  readonly start: number
  /** The cursor that the request names, unless it asks for later events only. */
  readonly cursor: number | undefined
}

const readHolder = firstRow(Schema.Struct({ key_id: Schema.String, name: Schema.String, scope: KeyScope }))
const readOpened = firstRow(Schema.Struct({ times_opened: IntColumn }))

/** The condition that a row has not expired and its key is valid. The outside key has no record. */
export const isValidAt = (sql: SqlClient.SqlClient, table: string, now: number) =>
  sql`expires_at > ${now} AND NOT EXISTS (SELECT 1 FROM api_keys WHERE id = ${sql(table)}.key_id
    AND (revoked_at IS NOT NULL OR expires_at <= ${new Date(now).toISOString()}))`

/** Writes with the time of the database, in ms since the epoch. */
export const atNow = (sql: SqlClient.SqlClient, statement: (now: number) => Read<unknown>): Write =>
  write(Effect.flatMap(databaseMillis(sql), statement))

/** Tickets by the SHA-256 of their text, in hex. The clock of the database decides their age, on every replica. */
export class TicketRepo extends Context.Service<TicketRepo>()("muster/store/TicketRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const count = (rows: Statement.Fragment) =>
      countOf(sql`SELECT COUNT(*) AS count FROM (${rows}) AS counted`)

    const isValid = (now: number) => isValidAt(sql, "tickets", now)

    /**
     * Stores a ticket for `lifetime` milliseconds and returns its expiry (milliseconds since the epoch), or the bound
     * that forbids it: `most` unopened tickets, or `mostOfKey` of the holder's key.
     */
    const insert = Effect.fn("TicketRepo.insert")(function* (
      hash: string,
      holder: TicketHolder,
      { lifetime, most, mostOfKey }: TicketLimits
    ): Writing<number | "most" | "mostOfKey"> {
      const now = yield* databaseMillis(sql)
      yield* sql`DELETE FROM tickets WHERE hash IN (
        SELECT hash FROM tickets WHERE expires_at <= ${now}
        ORDER BY expires_at LIMIT ${CLEARED})`
      // Streams have a bound of their own.
      const waits = sql`is_open = 0 AND expires_at > ${now}`
      const waiting = yield* count(sql`SELECT 1 FROM tickets WHERE ${waits} LIMIT ${most}`)
      if (waiting >= most) return "most"
      const own = yield* count(
        sql`SELECT 1 FROM tickets WHERE key_id = ${holder.key_id} AND ${waits} LIMIT ${mostOfKey}`
      )
      if (own >= mostOfKey) return "mostOfKey"
      const expires_at = now + lifetime
      yield* sql`INSERT INTO tickets ${sql.insert({ hash, ...holder, expires_at })}`
      return expires_at
    })

    /** Returns the holder of a valid ticket with a valid key. An unknown ticket costs one statement. */
    const find = Effect.fn("TicketRepo.find")(function* (hash: string) {
      const known = yield* sql`SELECT 1 FROM tickets WHERE hash = ${hash}`
      if (known.length === 0) return undefined
      const now = yield* databaseMillis(sql)
      return yield* readHolder(
        sql`SELECT key_id, name, scope FROM tickets WHERE hash = ${hash} AND ${isValid(now)}`
      )
    })

    /**
     * Opens the first stream of a ticket, or the same one again from its start, for `lifetime` milliseconds; returns
     * how often, unless invalid. The journal then notifies the replica with an earlier connection.
     */
    const open = Effect.fn("TicketRepo.open")(function* (
      hash: string,
      { cursor, start, stream }: TicketStream,
      lifetime: number
    ): Writing<number | undefined> {
      const now = yield* databaseMillis(sql)
      const opened = yield* readOpened(
        sql`UPDATE tickets SET stream = ${stream}, start_cursor = COALESCE(start_cursor, ${start}),
              times_opened = times_opened + 1, is_open = 1, expires_at = ${now + lifetime}
            WHERE hash = ${hash} AND (stream IS NULL OR (stream = ${stream} AND start_cursor <= ${cursor ?? Number.MAX_SAFE_INTEGER}))
              AND ${isValid(now)}
            RETURNING times_opened`
      )
      if (opened === undefined) return undefined
      const { times_opened } = opened
      if (times_opened > 1) {
        yield* append({ topic: "ticket:reopened", ticket: hash, times_opened })
      }
      return times_opened
    })

    return {
      insert,
      find,
      open,
      renew: (hashes: ReadonlyArray<string>, lifetime: number) =>
        atNow(
          sql,
          (now) => sql`UPDATE tickets SET expires_at = ${now + lifetime}
            WHERE is_open = 1 AND ${sql.in("hash", hashes)}`
        ),
      /** Marks a stream as closed, unless the ticket has opened it again; the ticket lives for `lifetime` milliseconds. */
      close: (hash: string, timesOpened: number, lifetime: number) =>
        atNow(
          sql,
          (now) => sql`UPDATE tickets SET is_open = 0, expires_at = ${now + lifetime}
            WHERE hash = ${hash} AND times_opened = ${timesOpened}`
        ),
      prune: atNow(sql, (now) => sql`DELETE FROM tickets WHERE expires_at <= ${now}`)
    }
  })
}) {
  static readonly layer = Layer.effect(TicketRepo, TicketRepo.make)
}
