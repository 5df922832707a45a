import { Context, Predicate, SchemaAST } from "effect"
import { FindMyWay } from "effect/http"
import { HttpApi, type HttpApiEndpoint, type HttpApiGroup } from "effect/http-api"
import {
  AnswersEarly,
  HasQueryFallbacks,
  IsRoutine,
  IsStream,
  type KeyRateLimit,
  LargeBody,
  LongestWait,
  RouteRateLimit,
  type Scopes
} from "../api/routePolicy.ts"
import type { AuditedRoute } from "../domain/AuditEntry.ts"
import type { Right } from "../domain/KeyScope.ts"
import { isApi, requestPath } from "./requestPath.ts"

/** Path matching of the router and of {@link makeRouteTable}; a longer path parameter matches no route. */
export const routerConfig = { caseSensitive: true, maxParamLength: 512 } as const

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const

/** The declared properties of a route; all requests are treated by them. */
export interface Route {
  /** Scopes of which a caller needs one; undefined: the route needs no key. */
  readonly scopes?: Scopes
  /** The right that an `Operator` or `ReadOnly` key needs; undefined: such a key cannot call the route. */
  readonly right?: Right
  /** The entry of a request in the audit log; undefined: none. */
  readonly audited?: AuditedRoute
  readonly isStream: boolean
  readonly isRoutine: boolean
  /** Whether the route answers before the start is complete. */
  readonly answersEarly: boolean
  /** Whether the handler reads a body. */
  readonly readsBody: boolean
  /** Bytes that a body may have where the setting is lower. */
  readonly largeBody: number
  /** Seconds for which the route may wait, on top of the time of every route. */
  readonly longestWait: number
  readonly rateLimit?: KeyRateLimit
  readonly hasQueryFallbacks: boolean
  /** Query parameters; undefined: any. */
  readonly query?: ReadonlyArray<string>
  /** `group.endpoint` of the API; empty for an unknown path. */
  readonly name: string
  /** The template of the path; empty for an unknown path. */
  readonly path: string
}

/** The route of a request. */
export interface RouteMatch {
  readonly route: Route
  /** Whether the route exists and has the method. */
  readonly isKnown: boolean
  readonly params: Readonly<Record<string, string | undefined>>
}

/** The routes of a server, as their APIs declare them. */
export interface RouteTable {
  /**
   * Returns the route of a request. With a wrong method it is another route of the path. For an unknown path, `scopes`
   * are those of all routes in its folder, or the scope of the whole API.
   */
  match(method: string, url: string): RouteMatch
  /** Methods of a path, for 405 and `Allow`. `HEAD` is allowed wherever `GET` is. */
  allowed(url: string): ReadonlyArray<string>
}

const plain: Route = {
  isStream: false,
  isRoutine: false,
  answersEarly: true,
  hasQueryFallbacks: false,
  readsBody: false,
  largeBody: 0,
  longestWait: 0,
  name: "",
  path: ""
}

const hasScopes = (middleware: unknown): middleware is { readonly scopes: Scopes } =>
  Predicate.hasProperty(middleware, "scopes")

/** A route with its method. */
interface DeclaredRoute extends Route {
  readonly method: string
}

/** Names of the declared query parameters. */
const queryOf = ({ query }: HttpApiEndpoint.Top): ReadonlyArray<string> => {
  if (query === undefined) return []
  const encoded = SchemaAST.toEncoded(query.ast)
  return SchemaAST.isObjects(encoded) ? encoded.propertySignatures.map(({ name }) => String(name)) : []
}

/**
 * Returns the routes of an API. The scopes of a route are those of its declared middleware.
 *
 * @param options.rights      the right that each route needs, by `group.endpoint`
 * @param options.audited     the entry of each route in the audit log, by `group.endpoint`
 * @param options.strictQuery refuse query parameters that a route under `/api` does not declare
 */
export const declaredRoutes = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  options: {
    readonly strictQuery: boolean
    readonly rights?: Readonly<Record<string, Right>>
    readonly audited?: Readonly<Record<string, AuditedRoute>>
  }
): ReadonlyArray<DeclaredRoute> => {
  const routes: Array<DeclaredRoute> = []
  HttpApi.reflect(api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group, mergedAnnotations, middleware }) => {
      const { method, path } = endpoint
      const name = `${group.identifier}.${endpoint.identifier}`
      const right = options.rights?.[name]
      const audited = options.audited?.[name]
      const authorization = Array.from<unknown>(middleware).find(hasScopes)
      const rateLimit = Context.get(mergedAnnotations, RouteRateLimit)
      routes.push({
        method,
        path,
        name,
        ...(right === undefined ? {} : { right }),
        ...(audited === undefined ? {} : { audited }),
        isStream: Context.get(mergedAnnotations, IsStream),
        isRoutine: Context.get(mergedAnnotations, IsRoutine),
        answersEarly: Context.get(mergedAnnotations, AnswersEarly),
        hasQueryFallbacks: Context.get(mergedAnnotations, HasQueryFallbacks),
        readsBody: endpoint.payload.size > 0,
        largeBody: Context.get(mergedAnnotations, LargeBody),
        longestWait: Context.get(mergedAnnotations, LongestWait),
        ...(authorization === undefined ? {} : { scopes: authorization.scopes }),
        ...(rateLimit === undefined ? {} : { rateLimit }),
        ...(options.strictQuery && isApi(path) ? { query: queryOf(endpoint) } : {})
      })
    }
  })
  return routes
}

// Paths of an HttpApi begin with a slash; the router's types require that in the type.
const pattern = (path: string) => path as `/${string}`

/** Scopes of the routes below each folder of a path, where all of them need the same. */
const folderScopes = (routes: ReadonlyArray<DeclaredRoute>) => {
  const folders = new Map<string, Set<Scopes | undefined>>()
  for (const { path, scopes } of routes) {
    for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
      const folder = path.slice(0, end)
      folders.set(folder, (folders.get(folder) ?? new Set()).add(scopes))
    }
  }
  return [...folders].flatMap(([folder, [scopes, ...others]]) =>
    scopes === undefined || others.length > 0 ? [] : [{ folder, scopes }]
  )
}

/**
 * Makes a table of routes.
 *
 * @param options.pages   paths outside the APIs that answer `GET`
 * @param options.unknown scopes for an unknown path under `/api`
 */
export const makeRouteTable = (options: {
  readonly routes: ReadonlyArray<DeclaredRoute>
  readonly pages?: ReadonlyArray<string>
  readonly unknown?: Scopes
}): RouteTable => {
  const router = FindMyWay.make<Route>(routerConfig)
  const folders = FindMyWay.make<Scopes>(routerConfig)
  for (const route of options.routes) router.on(route.method, pattern(route.path), route)
  for (const path of options.pages ?? []) router.on("GET", pattern(path), { ...plain, path })
  for (const { folder, scopes } of folderScopes(options.routes))
    folders.on("GET", pattern(`${folder}/*`), scopes)

  const find = (method: string, url: string) =>
    router.find(method, url) ?? (method === "HEAD" ? router.find("GET", url) : undefined)

  const unknown = (url: string): Route => {
    const inApi = isApi(requestPath(url)) ? options.unknown : undefined
    const scopes = folders.find("GET", url)?.handler ?? inApi
    return scopes === undefined ? plain : { ...plain, scopes }
  }

  return {
    allowed: (url) => methods.filter((method) => find(method, url) !== undefined),
    match: (method, url) => {
      const found = find(method, url)
      if (found !== undefined) return { route: found.handler, params: found.params, isKnown: true }
      for (const other of methods) {
        const wrong = router.find(other, url)
        if (wrong !== undefined) return { route: wrong.handler, params: wrong.params, isKnown: false }
      }
      return { route: unknown(url), params: {}, isKnown: false }
    }
  }
}
