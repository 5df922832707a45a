import { Context, Effect, Layer, type Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { firstRow, IntColumn } from "./rows.ts"
import type { Transaction } from "./Transaction.ts"

/** The first answer to a request that bore an `Idempotency-Key` (decisions, section 3). */
export interface IdempotentAnswer {
  /** SHA-256 of the request's body, in hex. */
  readonly body_hash: string
  /** The JSON body that was answered. */
  readonly response: string
  /** Milliseconds since the epoch. */
  readonly created_at: number
}

/** Answers by key, kept for 24 h. */
export class IdempotencyRepo extends Context.Service<
  IdempotencyRepo,
  {
    /** The answer to `key`, unless it is older than `notBefore` (milliseconds since the epoch). */
    find(key: string, notBefore: number): Effect.Effect<Option.Option<IdempotentAnswer>, SqlError.SqlError>
    /**
     * Keeps an answer; one that was there and is older than `notBefore` is replaced. False: there is one already, which
     * another replica has just kept; nothing is changed.
     */
    keep(
      key: string,
      answer: IdempotentAnswer,
      notBefore?: number
    ): Effect.Effect<boolean, SqlError.SqlError, Transaction>
    /** Removes answers from before `notBefore`. */
    prune(notBefore: number): Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/IdempotencyRepo") {
  static readonly layer = Layer.effect(
    IdempotencyRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const find = Effect.fn("IdempotencyRepo.find")((key: string, notBefore: number) =>
        readFirst(
          sql`SELECT body_hash, response, created_at FROM idempotency
              WHERE key = ${key} AND created_at >= ${notBefore}`
        )
      )
      const keep = Effect.fn("IdempotencyRepo.keep")(
        (key: string, answer: IdempotentAnswer, notBefore = answer.created_at) =>
          Effect.map(
            sql`INSERT INTO idempotency ${sql.insert({ key, ...answer })}
                ON CONFLICT (key) DO UPDATE SET body_hash = excluded.body_hash,
                  response = excluded.response, created_at = excluded.created_at
                WHERE idempotency.created_at < ${notBefore}
                RETURNING key`,
            (rows) => rows.length > 0
          )
      )
      const prune = Effect.fn("IdempotencyRepo.prune")((notBefore: number) =>
        Effect.asVoid(sql`DELETE FROM idempotency WHERE created_at < ${notBefore}`)
      )
      return IdempotencyRepo.of({ find, keep, prune })
    })
  )
}

const readFirst = firstRow(
  Schema.Struct({ body_hash: Schema.String, response: Schema.String, created_at: IntColumn })
)
