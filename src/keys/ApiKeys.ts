import type { Redacted } from "effect"
import { Context, type Duration, type Effect } from "effect"
import type { NotFound, Unauthorized, Unavailable } from "../domain/errors.ts"
import type { KeyScope } from "../domain/KeyScope.ts"
import type { KeyRecord } from "../store/KeyRepo.ts"

/** Who calls. */
export interface Principal {
  /** Id of the key; `env` for the one from `APP_ADMIN_API_KEY`. */
  readonly key_id: string
  readonly name: string
  readonly scope: KeyScope
}

/** API keys: made, checked, revoked (decisions, section 5). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /**
     * Who bears `key`. Unknown, revoked and expired keys read the same to the caller; the log tells them apart.
     *
     * @error Unavailable the database cannot be reached and nothing is cached
     */
    verify(key: string): Effect.Effect<Principal, Unauthorized | Unavailable>
    /** Makes a key; the answer holds it, the store only its hash. */
    create(options: {
      readonly name: string
      readonly scope: KeyScope
      readonly expires?: Duration.Duration
    }): Effect.Effect<{ readonly key: Redacted.Redacted<string>; readonly record: KeyRecord }, Unavailable>
    readonly list: Effect.Effect<ReadonlyArray<KeyRecord>, Unavailable>
    /** @error NotFound there is no such key, or it is revoked already */
    revoke(id: string): Effect.Effect<void, NotFound | Unavailable>
  }
>()("muster/keys/ApiKeys") {}
