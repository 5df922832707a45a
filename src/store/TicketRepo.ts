import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { KeyScope } from "../domain/KeyScope.ts"
import { databaseMillis } from "./dialect.ts"
import { firstRow, IntColumn } from "./rows.ts"
import type { Transaction } from "./Transaction.ts"

/** Expired tickets that one insertion clears away: more than come in, and few enough to be quick. */
const CLEARED = 100

/** Whom a ticket was issued to. */
export interface TicketHolder {
  readonly key_id: string
  readonly name: string
  readonly scope: typeof KeyScope.Type
}

/**
 * Tickets by the SHA-256 of their text, in hex. Their age is told by one clock, that of the database, whichever
 * replica issues and whichever is asked.
 */
export class TicketRepo extends Context.Service<
  TicketRepo,
  {
    /**
     * Keeps a ticket for `lifetime` milliseconds and removes some that have expired. Answers when it expires,
     * milliseconds since the epoch; undefined: `most` tickets wait already, nothing is kept.
     */
    insert(
      hash: string,
      holder: TicketHolder,
      limits: { readonly lifetime: number; readonly most: number }
    ): Effect.Effect<number | undefined, SqlError.SqlError, Transaction>
    /**
     * Removes a ticket and answers its holder; undefined when there is none, it has expired or its holder's key was
     * revoked meanwhile. Of any number that ask at once one gets it.
     */
    take(hash: string): Effect.Effect<TicketHolder | undefined, SqlError.SqlError, Transaction>
  }
>()("muster/store/TicketRepo") {
  static readonly layer = Layer.effect(
    TicketRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const insert = Effect.fn("TicketRepo.insert")(function* (
        hash: string,
        holder: TicketHolder,
        { lifetime, most }: { readonly lifetime: number; readonly most: number }
      ) {
        const now = yield* databaseMillis(sql)
        yield* sql`DELETE FROM tickets WHERE hash IN (
          SELECT hash FROM tickets WHERE expires_at <= ${now}
          ORDER BY expires_at LIMIT ${CLEARED})`
        const waiting = yield* readCount(
          sql`SELECT COUNT(*) AS count FROM (SELECT 1 FROM tickets LIMIT ${most}) AS waiting`
        )
        if (Option.isSome(waiting) && waiting.value.count >= most) return undefined
        const expires_at = now + lifetime
        yield* sql`INSERT INTO tickets ${sql.insert({ hash, ...holder, expires_at })}`
        return expires_at
      })

      const take = Effect.fn("TicketRepo.take")(function* (hash: string) {
        const now = yield* databaseMillis(sql)
        const taken = yield* readHolder(
          // The key from outside has no record.
          sql`DELETE FROM tickets WHERE hash = ${hash} AND expires_at > ${now}
              AND NOT EXISTS (SELECT 1 FROM api_keys WHERE id = tickets.key_id AND revoked_at IS NOT NULL)
              RETURNING key_id, name, scope`
        )
        return Option.getOrUndefined(taken)
      })

      return TicketRepo.of({ insert, take })
    })
  )
}

const readCount = firstRow(Schema.Struct({ count: IntColumn }))
const readHolder = firstRow(Schema.Struct({ key_id: Schema.String, name: Schema.String, scope: KeyScope }))
