import { Effect, Layer } from "effect"
import { Authorization, MetricsAuthorization } from "../api/Authorization.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { lackingOf, neededRights } from "../api/rights.ts"
import type { Scopes } from "../api/routePolicy.ts"
import { Forbidden, Unauthorized } from "../domain/errors.ts"
import type { Right } from "../domain/KeyScope.ts"

/**
 * Fails unless the request was authenticated with a key of one of these scopes, and the key has the right. The middleware
 * of every protected route checks this, so that a route that the route table missed refuses the request.
 */
export const requireScope = Effect.fnUntraced(function* (scopes: Scopes, right?: Right) {
  const principal = yield* CurrentPrincipal
  if (principal === undefined) {
    return yield* new Unauthorized({ detail: "no API key was given" })
  }
  const lacking = lackingOf(principal, right, scopes)
  if (lacking !== undefined) return yield* new Forbidden({ detail: `the API key lacks${lacking}` })
  return principal
})

/** `Authorization` and `MetricsAuthorization`: check what the authenticated principal may do. */
export const AuthorizationLayer = Layer.mergeAll(
  Layer.succeed(
    Authorization,
    Authorization.of({
      bearer: (handler, { endpoint, group }) =>
        Effect.andThen(
          requireScope(Authorization.scopes, neededRights[`${group.identifier}.${endpoint.identifier}`]),
          handler
        )
    })
  ),
  Layer.succeed(
    MetricsAuthorization,
    MetricsAuthorization.of({
      bearer: (handler) => Effect.andThen(requireScope(MetricsAuthorization.scopes), handler)
    })
  )
)
