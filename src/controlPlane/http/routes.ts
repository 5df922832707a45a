import { Context, Effect, SchemaAST } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { HttpApi, type HttpApiEndpoint, type HttpApiGroup } from "effect/http-api"
import { applicationScopes, Policy, type RoutePolicy } from "../../contract/api/middleware.ts"
import { isApi, requestPath } from "./requestUrl.ts"

/** Path matching of the router; a longer path parameter matches no route. */
export const routerConfig = { caseSensitive: true, maxParamLength: 512 } as const

export interface Route extends RoutePolicy {
  /** `group.endpoint` of the API; empty for a page and an unknown path. */
  readonly name: string
  /** The template of the path; empty for an unknown path. */
  readonly path: string
  readonly readsBody: boolean
  /** Whether the handler reads the body as it arrives. */
  readonly streamsBody?: boolean
  /** The largest status of a success: a dry run has a smaller one. */
  readonly status: number
  /** Query parameters; default: any. */
  readonly query?: ReadonlyArray<string>
}

export interface RouteMatch {
  readonly route: Route
  /** Whether the route exists and has the method. */
  readonly isKnown: boolean
  readonly params: Readonly<Record<string, string | undefined>>
}

const plain: Route = { answersEarly: true, readsBody: false, status: 200, name: "", path: "" }

const queryOf = ({ query }: HttpApiEndpoint.Top): ReadonlyArray<string> => {
  if (query === undefined) return []
  const encoded = SchemaAST.toEncoded(query.ast)
  return SchemaAST.isObjects(encoded) ? encoded.propertySignatures.map(({ name }) => String(name)) : []
}

export const routesOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
) => {
  const routes: Array<Route & { readonly method: string }> = []
  HttpApi.reflect(api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group, successes }) => {
      const { identifier, method, path } = endpoint
      const policy = {
        ...(isApi(path) ? { scopes: applicationScopes } : {}),
        ...Context.get(group.annotations, Policy),
        ...Context.get(endpoint.annotations, Policy)
      }
      routes.push({
        ...policy,
        method,
        path,
        name: `${group.identifier}.${identifier}`,
        readsBody: endpoint.payload.size > 0,
        streamsBody: [...endpoint.payload.values()].some(({ encoding }) => encoding._tag === "Stream"),
        status: Math.max(...successes.keys()),
        ...(isApi(path) && policy.acceptsAnyQuery !== true ? { query: queryOf(endpoint) } : {})
      })
    }
  })
  return routes
}

/** Returns the policy of the routes of a server; a route that no API declares is a page, below `/api` for keys only. */
export const makePolicies = (routes: ReturnType<typeof routesOf>) => {
  const declared = new Map(routes.map((route) => [`${route.method} ${route.path}`, route]))
  return (method: string, path: string): Route =>
    declared.get(`${method} ${path}`) ?? {
      ...plain,
      ...(isApi(path) ? { scopes: applicationScopes } : {}),
      path
    }
}

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const

/** Whether the router is asked which route it finds: a route then fails with its match and runs no handler. */
export const Asked = Context.Reference("muster/http/Asked", { defaultValue: () => false })

const isMatch = (found: unknown): found is RouteMatch =>
  typeof found === "object" && found !== null && "isKnown" in found

/** The folder of the routes that daemons call. */
const ofDaemons = /^\/api\/nodes\/[^/]+\/internal\//

/** Returns the policy of an unknown path: below `/api`, any key of the application gets 404 (spec 1.4). */
const unknown = (url: string): Route => {
  const path = requestPath(url)
  if (ofDaemons.test(path)) return { ...plain, scopes: ["Node"] }
  return isApi(path) ? { ...plain, scopes: applicationScopes, right: "read" } : plain
}

export interface Missed {
  /** Another route of the path, or the policy of an unknown path. */
  readonly found: RouteMatch
  /** The methods of the path; `HEAD` wherever `GET` is. */
  readonly allowed: ReadonlyArray<string>
}

/** Asks the router for the routes that the path of the current request has with other methods. */
export const missedBy = Effect.fnUntraced(function* (
  router: Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>
): Effect.fn.Return<Missed, never, HttpServerRequest.HttpServerRequest> {
  const request = yield* HttpServerRequest.HttpServerRequest
  const others = yield* Effect.forEach(methods, (method) =>
    Effect.flip(router).pipe(
      Effect.provideService(
        HttpServerRequest.HttpServerRequest,
        Object.create(request, { method: { value: method } })
      ),
      Effect.provideService(Asked, true),
      Effect.match({
        onFailure: () => [],
        onSuccess: (found) => (isMatch(found) ? [{ method, found }] : [])
      })
    )
  )
  const routes = others.flat()
  const { params, route } = routes[0]?.found ?? { params: {}, route: unknown(request.url) }
  return {
    found: { params, route, isKnown: false },
    allowed: routes.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method]))
  }
})
