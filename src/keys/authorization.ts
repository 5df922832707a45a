import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRespondable } from "effect/http"
import { Authorization, MetricsAuthorization } from "../api/Authorization.ts"
import { CurrentPrincipal, type Principal } from "../api/Principal.ts"
import { findsServer, lackingOf, neededRights } from "../api/rights.ts"
import type { Scopes } from "../api/routePolicy.ts"
import { ServerAccess } from "../api/ServerAccess.ts"
import { Forbidden, NotFound, ServerNotFound, Unauthorized } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import type { Right } from "../domain/KeyScope.ts"

/**
 * Fails unless the request was authenticated with a key of one of these scopes, and the key has the right. The middleware
 * of every protected route checks this, so that a route that the route table missed refuses the request.
 */
export const requireScope = (scopes: Scopes, right?: Right) =>
  Effect.withFiber((fiber): Effect.Effect<Principal, Unauthorized | Forbidden> => {
    const principal = fiber.getRef(CurrentPrincipal)
    if (principal === undefined) return new Unauthorized({ detail: "no API key was given" })
    const lacking = lackingOf(principal, right, scopes)
    return lacking === undefined
      ? Effect.succeed(principal)
      : new Forbidden({ detail: `the API key lacks${lacking}` })
  })

/** 404: the caller may not read the server of the path, or there is none. */
const refuseUnreadable = Effect.fnUntraced(function* (access: ServerAccess["Service"]) {
  const { server } = yield* HttpRouter.params
  if (server === undefined) return undefined
  if (yield* access.mayRead(ServerId.make(server))) return undefined
  return yield* yield* access.explained(server, NotFound.server(server))
}, Effect.catch(HttpServerRespondable.toResponse))

/** Returns the response of a handler that finds no server of the path, with the end of that server. */
const explained = (access: ServerAccess["Service"], error: ServerNotFound) =>
  Effect.flatMap(HttpRouter.params, ({ server = "" }) =>
    Effect.flatMap(access.explained(server, error), HttpServerRespondable.toResponse)
  )

/** `Authorization` and `MetricsAuthorization`: check what the authenticated principal may do. */
export const AuthorizationLayer = Layer.mergeAll(
  Layer.effect(
    Authorization,
    Effect.map(ServerAccess, (access) =>
      Authorization.of((route, { endpoint, group }) => {
        const handler = endpoint.path.includes(":server")
          ? Effect.catchIf(
              route,
              (error) => error instanceof ServerNotFound,
              (error) => explained(access, error)
            )
          : route
        const name = `${group.identifier}.${endpoint.identifier}`
        return Effect.flatMap(requireScope(Authorization.scopes, neededRights[name]), ({ restriction }) =>
          restriction === undefined || findsServer.has(name)
            ? handler
            : Effect.flatMap(refuseUnreadable(access), (refusal) =>
                refusal === undefined ? handler : Effect.succeed(refusal)
              )
        )
      })
    )
  ),
  Layer.succeed(
    MetricsAuthorization,
    MetricsAuthorization.of((handler) => Effect.andThen(requireScope(MetricsAuthorization.scopes), handler))
  )
)
