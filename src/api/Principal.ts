import { Context, Effect } from "effect"
import type { KeyScope } from "../domain/KeyScope.ts"

/** Who calls. */
export interface Principal {
  /** Id of the key; `env` for the one from `APP_ADMIN_API_KEY`. */
  readonly key_id: string
  readonly name: string
  readonly scope: KeyScope
}

/** Who makes the current request; undefined where no key was needed or none was accepted. */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("muster/api/CurrentPrincipal", {
  defaultValue: () => undefined
})

/** Waits until the key of who calls is not valid any more: streams that it has opened end then (decisions, section 5). */
export const KeyEnds = Context.Reference<(principal: Principal | undefined) => Effect.Effect<void>>(
  "muster/api/KeyEnds",
  { defaultValue: () => () => Effect.never }
)
