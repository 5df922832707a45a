import { Context, type Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { KeyScope } from "../domain/KeyScope.ts"
import type { Transaction } from "./Store.ts"

/** What is kept of an API key: never the key, only its SHA-256 in hex. Times RFC 3339 UTC. */
export const KeyRecord = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  scope: KeyScope,
  hash: Schema.String,
  created_at: Schema.String,
  expires_at: Schema.NullOr(Schema.String),
  revoked_at: Schema.NullOr(Schema.String)
})
export type KeyRecord = typeof KeyRecord.Type

/** Records of API keys. */
export class KeyRepo extends Context.Service<
  KeyRepo,
  {
    insert(record: KeyRecord): Effect.Effect<void, SqlError.SqlError, Transaction>
    /** False when there is no such key or it is revoked already. */
    revoke(id: string, at: string): Effect.Effect<boolean, SqlError.SqlError, Transaction>
    readonly all: Effect.Effect<ReadonlyArray<KeyRecord>, SqlError.SqlError>
    /**
     * A number that changes whenever any process changes the keys: cheap to ask, so that a cache of `all` can be
     * kept without missing a revocation.
     */
    readonly version: Effect.Effect<number, SqlError.SqlError>
  }
>()("muster/store/KeyRepo") {}
