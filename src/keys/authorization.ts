import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRespondable } from "effect/http"
import { Authorization, MetricsAuthorization } from "../api/Authorization.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { findsServer, lackingOf, neededRights } from "../api/rights.ts"
import type { Scopes } from "../api/routePolicy.ts"
import { ServerAccess } from "../api/ServerAccess.ts"
import { Forbidden, NotFound, Unauthorized } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
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

/** 404: the caller may not read the server of the path, or there is none. */
const refuseUnreadable = Effect.fnUntraced(function* (access: ServerAccess["Service"]) {
  const { server } = yield* HttpRouter.params
  if (server === undefined) return undefined
  const id = ServerId.make(server)
  return (yield* access.mayRead(id)) ? undefined : yield* NotFound.server(id)
}, Effect.catch(HttpServerRespondable.toResponse))

/** `Authorization` and `MetricsAuthorization`: check what the authenticated principal may do. */
export const AuthorizationLayer = Layer.mergeAll(
  Layer.effect(
    Authorization,
    Effect.map(ServerAccess, (access) =>
      Authorization.of({
        bearer: Effect.fnUntraced(function* (handler, { endpoint, group }) {
          const name = `${group.identifier}.${endpoint.identifier}`
          const { restriction } = yield* requireScope(Authorization.scopes, neededRights[name])
          const refusal =
            restriction === undefined || findsServer.has(name) ? undefined : yield* refuseUnreadable(access)
          return refusal ?? (yield* handler)
        })
      })
    )
  ),
  Layer.succeed(
    MetricsAuthorization,
    MetricsAuthorization.of({
      bearer: (handler) => Effect.andThen(requireScope(MetricsAuthorization.scopes), handler)
    })
  )
)
