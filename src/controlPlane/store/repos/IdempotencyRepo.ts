import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { IntColumn, readRows, upsertRows } from "../sql/rows.ts"
import { write } from "../sql/Transaction.ts"

/** The first response to a request with an `Idempotency-Key` (spec 3). */
export interface IdempotentAnswer {
  /** SHA-256 of the request's body, in hex. */
  readonly body_hash: string
  /** The JSON body of the response. */
  readonly response: string
  /** Milliseconds since the epoch. */
  readonly created_at: number
}

export interface KeptAnswer extends IdempotentAnswer {
  readonly key: string
}

const readResponses = readRows(
  Schema.Struct({
    key: Schema.String,
    body_hash: Schema.String,
    response: Schema.String,
    created_at: IntColumn
  })
)

/** Responses by key, retained for 24 h. */
export class IdempotencyRepo extends Context.Service<IdempotencyRepo>()("muster/store/IdempotencyRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    /** Returns the responses of keys, except those older than `notBefore` (milliseconds since the epoch). */
    const findAll = Effect.fn("IdempotencyRepo.findAll")(function* (
      keys: ReadonlyArray<string>,
      notBefore: number
    ): Effect.fn.Return<ReadonlyMap<string, IdempotentAnswer>, SqlError.SqlError> {
      if (keys.length === 0) return new Map()
      const rows = yield* readResponses(
        sql`SELECT key, body_hash, response, created_at FROM idempotency
            WHERE ${sql.in("key", keys)} AND created_at >= ${notBefore}`
      )
      return new Map(rows.map(({ key, ...answer }) => [key, answer]))
    })
    return {
      findAll,
      find: (key: string, notBefore: number) =>
        Effect.map(findAll([key], notBefore), (found) => found.get(key)),
      /** Stores responses with distinct keys, in place of earlier ones; the caller has checked those in the same write. */
      keepAll: (answers: ReadonlyArray<KeptAnswer>) =>
        write(
          upsertRows(
            sql,
            "idempotency",
            "key",
            answers.map((answer) => ({ ...answer }))
          )
        ),
      /** Removes responses older than `notBefore`. */
      prune: (notBefore: number) => write(sql`DELETE FROM idempotency WHERE created_at < ${notBefore}`)
    }
  })
}) {
  static readonly layer = Layer.effect(IdempotencyRepo, IdempotencyRepo.make)
}
