import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { insertRows } from "../sql/insertRows.ts"
import { IntColumn, readRows } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

/** The first response to a request with an `Idempotency-Key` (spec 3). */
export interface IdempotentAnswer {
  /** SHA-256 of the request's body, in hex. */
  readonly body_hash: string
  /** The JSON body of the response. */
  readonly response: string
  /** Milliseconds since the epoch. */
  readonly created_at: number
}

/** A response and its key. */
export interface KeptAnswer extends IdempotentAnswer {
  readonly key: string
}

/** Responses by key, retained for 24 h. */
export class IdempotencyRepo extends Context.Service<
  IdempotencyRepo,
  {
    /** Returns the response of `key`, unless it is older than `notBefore` (milliseconds since the epoch). */
    find(key: string, notBefore: number): Effect.Effect<Option.Option<IdempotentAnswer>, SqlError.SqlError>
    /** {@link find} for many keys. */
    findAll(
      keys: ReadonlyArray<string>,
      notBefore: number
    ): Effect.Effect<ReadonlyMap<string, IdempotentAnswer>, SqlError.SqlError>
    /**
     * Stores responses with distinct keys, in place of earlier ones; the caller has checked those in the same write.
     */
    keepAll(answers: ReadonlyArray<KeptAnswer>): Effect.Effect<void, SqlError.SqlError, Transaction>
    /** Removes responses older than `notBefore`. */
    prune(notBefore: number): Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/IdempotencyRepo") {
  static readonly layer = Layer.effect(
    IdempotencyRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const findAll = Effect.fn("IdempotencyRepo.findAll")(function* (
        keys: ReadonlyArray<string>,
        notBefore: number
      ) {
        if (keys.length === 0) return new Map<string, IdempotentAnswer>()
        const rows = yield* readResponses(
          sql`SELECT key, body_hash, response, created_at FROM idempotency
              WHERE ${sql.in("key", keys)} AND created_at >= ${notBefore}`
        )
        return new Map(rows.map(({ key, ...answer }) => [key, answer]))
      })
      const find = Effect.fn("IdempotencyRepo.find")((key: string, notBefore: number) =>
        Effect.map(findAll([key], notBefore), (found) => Option.fromUndefinedOr(found.get(key)))
      )
      const keepAll = Effect.fn("IdempotencyRepo.keepAll")((answers: ReadonlyArray<KeptAnswer>) =>
        insertRows(
          sql,
          "idempotency",
          answers.map((answer) => ({ ...answer })),
          `ON CONFLICT (key) DO UPDATE SET body_hash = excluded.body_hash,
            response = excluded.response, created_at = excluded.created_at`
        )
      )
      const prune = Effect.fn("IdempotencyRepo.prune")((notBefore: number) =>
        Effect.asVoid(sql`DELETE FROM idempotency WHERE created_at < ${notBefore}`)
      )
      return IdempotencyRepo.of({ find, findAll, keepAll, prune })
    })
  )
}

const readResponses = readRows(
  Schema.Struct({
    key: Schema.String,
    body_hash: Schema.String,
    response: Schema.String,
    created_at: IntColumn
  })
)
