import { Context, Effect } from "effect"
import type { KeyScope } from "../domain/KeyScope.ts"

/** The key of a caller. */
export interface Principal {
  /** Id of the key; `env` for the one from `APP_ADMIN_API_KEY`. */
  readonly key_id: string
  readonly name: string
  readonly scope: KeyScope
}

/** The caller of the current request; undefined: the route needs no key, or no key was accepted. */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("muster/api/CurrentPrincipal", {
  defaultValue: () => undefined
})

/** Waits until the caller's key is no longer valid. Streams end then (decisions, section 5). */
export const KeyEnds = Context.Reference<(principal: Principal | undefined) => Effect.Effect<void>>(
  "muster/api/KeyEnds",
  { defaultValue: () => () => Effect.never }
)
