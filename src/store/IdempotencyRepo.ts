import { Context, type Effect, type Option } from "effect"
import type { SqlError } from "effect/sql"
import type { Transaction } from "./Store.ts"

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
    /** Keeps an answer; one that was there and is too old is replaced. */
    keep(key: string, answer: IdempotentAnswer): Effect.Effect<void, SqlError.SqlError, Transaction>
    /** Removes answers from before `notBefore`. */
    prune(notBefore: number): Effect.Effect<void, SqlError.SqlError, Transaction>
  }
>()("muster/store/IdempotencyRepo") {}
