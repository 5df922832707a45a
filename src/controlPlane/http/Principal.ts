import { Context, Effect } from "effect"
import type { KeyScope, Restriction, Right } from "../../contract/domain/Key.ts"
import type { Quota } from "../../contract/domain/Quota.ts"

export interface Principal {
  /** Id of the key, {@link OUTSIDE_KEY} or {@link LOCAL_KEY}. */
  readonly key_id: string
  readonly name: string
  readonly scope: KeyScope
  /** The rights of the key; if unset, it has all that its scope allows. */
  readonly rights?: ReadonlySet<Right>
  /** The servers that the key may read; if unset, it may read every server. */
  readonly restriction?: Restriction
  /** The quotas of the servers that the key creates or enlarges. */
  readonly quotas?: ReadonlyArray<Quota>
  /** SHA-256 of the ticket that the caller sent in place of the key, in hex. */
  readonly ticket?: string
}

/** Id of the key from `APP_ADMIN_API_KEY`. */
export const OUTSIDE_KEY = "env"

/** Id of the caller over the unix socket of the service, which needs no key. */
export const LOCAL_KEY = "cli"

/** The caller of the current request, unless no key was needed or accepted. */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("muster/api/CurrentPrincipal", {
  defaultValue: () => undefined
})

/** The servers that the current caller may read, unless it may read all. */
export const currentRestriction = Effect.map(CurrentPrincipal, (principal) => principal?.restriction)

/** Waits until the caller's key is no longer valid. Streams end then (spec 6.1). */
export const KeyEnds = Context.Reference<(principal: Principal | undefined) => Effect.Effect<void>>(
  "muster/api/KeyEnds",
  { defaultValue: () => () => Effect.never }
)
