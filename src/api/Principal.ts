import { Context } from "effect"
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
