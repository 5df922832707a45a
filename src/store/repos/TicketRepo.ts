import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { KeyScope } from "../../domain/KeyScope.ts"
import { ExpiryClock } from "../journal/ExpiryClock.ts"
import { firstRow, IntColumn } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

/** Expired tickets that one insertion removes: more than are added, and few enough to be quick. */
const CLEARED = 100

/** The holder of a ticket. */
export interface TicketHolder {
  readonly key_id: string
  readonly name: string
  readonly scope: typeof KeyScope.Type
}

export interface TicketLimits {
  /** Milliseconds. */
  readonly lifetime: number
  readonly most: number
  readonly mostOfKey: number
}

/** Tickets by the SHA-256 of their text, in hex. The clock of the database decides their age, on every replica. */
export class TicketRepo extends Context.Service<
  TicketRepo,
  {
    /**
     * Stores a ticket for `lifetime` milliseconds and removes some expired ones. Returns its expiry, in milliseconds
     * since the epoch. Stores nothing if there are `most` unused tickets in total, or `mostOfKey` of the holder's key,
     * and returns which bound was reached.
     */
    insert(
      hash: string,
      holder: TicketHolder,
      limits: TicketLimits
    ): Effect.Effect<number | "most" | "mostOfKey", SqlError.SqlError, Transaction>
    /** Whether a ticket was issued and not used; it may be expired. */
    isKept(hash: string): Effect.Effect<boolean, SqlError.SqlError>
    /**
     * Removes a ticket and returns its holder; undefined: it is unknown or expired, or its holder's key is revoked. Of
     * several concurrent calls, one gets it.
     */
    take(hash: string): Effect.Effect<TicketHolder | undefined, SqlError.SqlError, Transaction>
    /** Removes all expired tickets. */
    readonly prune: Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/TicketRepo") {
  static readonly layer = Layer.effect(
    TicketRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const clock = yield* ExpiryClock

      const count = (rows: Statement.Fragment) =>
        Effect.map(
          readCount(sql`SELECT COUNT(*) AS count FROM (${rows}) AS counted`),
          Option.match({ onNone: () => 0, onSome: (row) => row.count })
        )

      const insert = Effect.fn("TicketRepo.insert")(function* (
        hash: string,
        holder: TicketHolder,
        { lifetime, most, mostOfKey }: TicketLimits
      ) {
        const now = yield* clock.databaseMillis
        yield* sql`DELETE FROM tickets WHERE hash IN (
          SELECT hash FROM tickets WHERE expires_at <= ${now}
          ORDER BY expires_at LIMIT ${CLEARED})`
        const waiting = yield* count(sql`SELECT 1 FROM tickets WHERE expires_at > ${now} LIMIT ${most}`)
        if (waiting >= most) return "most" as const
        const own = yield* count(
          sql`SELECT 1 FROM tickets WHERE key_id = ${holder.key_id} AND expires_at > ${now} LIMIT ${mostOfKey}`
        )
        if (own >= mostOfKey) return "mostOfKey" as const
        const expires_at = now + lifetime
        yield* sql`INSERT INTO tickets ${sql.insert({ hash, ...holder, expires_at })}`
        return expires_at
      })

      const isKept = (hash: string) =>
        Effect.map(sql`SELECT 1 FROM tickets WHERE hash = ${hash}`, (rows) => rows.length > 0)

      const take = Effect.fn("TicketRepo.take")(function* (hash: string) {
        const now = yield* clock.databaseMillis
        const taken = yield* readHolder(
          // The outside key has no record.
          sql`DELETE FROM tickets WHERE hash = ${hash} AND expires_at > ${now}
              AND NOT EXISTS (SELECT 1 FROM api_keys WHERE id = tickets.key_id AND revoked_at IS NOT NULL)
              RETURNING key_id, name, scope`
        )
        return Option.getOrUndefined(taken)
      })

      const prune = Effect.flatMap(
        clock.databaseMillis,
        (now) => sql`DELETE FROM tickets WHERE expires_at <= ${now}`
      ).pipe(Effect.asVoid)

      return TicketRepo.of({ insert, isKept, take, prune })
    })
  )
}

const readCount = firstRow(Schema.Struct({ count: IntColumn }))
const readHolder = firstRow(Schema.Struct({ key_id: Schema.String, name: Schema.String, scope: KeyScope }))
