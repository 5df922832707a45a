import { Effect, Layer } from "effect"
import { Authorization, MetricsAuthorization } from "../api/Authorization.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { Forbidden, Unauthorized } from "../domain/errors.ts"
import type { KeyScope } from "../domain/KeyScope.ts"

/**
 * Fails unless the request was authenticated with a key of one of these scopes. Every protected route asks this
 * itself, so that a path which the authentication did not recognise is refused, not served.
 */
export const requireScope = Effect.fnUntraced(function* (...scopes: ReadonlyArray<KeyScope>) {
  const principal = yield* CurrentPrincipal
  if (principal === undefined) {
    return yield* new Unauthorized({ detail: "no API key was given" })
  }
  if (!scopes.includes(principal.scope)) {
    return yield* new Forbidden({ detail: `the API key lacks the scope ${scopes[0]}` })
  }
  return principal
})

/** `Authorization` and `MetricsAuthorization`: scopes of the principal that the request was authenticated as. */
export const AuthorizationLayer = Layer.mergeAll(
  Layer.succeed(
    Authorization,
    Authorization.of({ bearer: (handler) => Effect.andThen(requireScope("AppAdmin"), handler) })
  ),
  Layer.succeed(
    MetricsAuthorization,
    MetricsAuthorization.of({
      bearer: (handler) => Effect.andThen(requireScope("Metrics", "AppAdmin"), handler)
    })
  )
)
