import { Effect, Layer } from "effect"
import { Authorization, MetricsAuthorization } from "../api/Authorization.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { Forbidden, Unauthorized } from "../domain/errors.ts"
import type { KeyScope } from "../domain/KeyScope.ts"

/**
 * Fails unless the request was authenticated with a key of one of these scopes. The middleware of every protected route
 * checks this, so that a route that the route table missed refuses the request.
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

/** `Authorization` and `MetricsAuthorization`: check the scope of the authenticated principal. */
export const AuthorizationLayer = Layer.mergeAll(
  Layer.succeed(
    Authorization,
    Authorization.of({ bearer: (handler) => Effect.andThen(requireScope(...Authorization.scopes), handler) })
  ),
  Layer.succeed(
    MetricsAuthorization,
    MetricsAuthorization.of({
      bearer: (handler) => Effect.andThen(requireScope(...MetricsAuthorization.scopes), handler)
    })
  )
)
