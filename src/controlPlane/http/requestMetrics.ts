import { Clock, Effect, type Fiber, LogLevel, Metric, References } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { httpDuration, httpRequests } from "../../shared/observability/metrics.ts"
import { defined } from "../../shared/work/defined.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { clientOf, isOfStranger } from "./node/clients.ts"
import { pathOf } from "./requestUrl.ts"
import type { Route, RouteMatch } from "./routes.ts"

const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])

const made = new Map<string, ReturnType<typeof makeSeries>>()

const makeSeries = (method: string, path: string, status: number) => {
  const labels = { method, route: path === "" ? "other" : path }
  return {
    requests: Metric.withAttributes(httpRequests, { ...labels, status: String(status) }),
    duration: Metric.withAttributes(httpDuration, labels)
  }
}

/** Returns the metrics of a request, made once: a tenth of a read. Unknown methods share one label, which bounds them. */
const seriesOf = (given: string, path: string, status: number) => {
  const method = methods.has(given) ? given : "other"
  const key = `${method} ${path} ${status}`
  const series = made.get(key) ?? makeSeries(method, path, status)
  made.set(key, series)
  return series
}

/** Responses before the request is read: no valid key, over its limit, or (400) no `Host`. */
const unread: ReadonlySet<number> = new Set([400, 401, 429])

/** Whether a caller without a key can cause the response. Failed authentications are counted and logged elsewhere. */
const isPublic = ({ scopes }: Route, status: number): boolean => unread.has(status) || scopes === undefined

/** 101 for a WebSocket: the upgrade has sent it, and the response of the handler is not sent. */
const statusOf = (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse
) => (request.headers.upgrade !== undefined && response.status === 204 ? 101 : response.status)

const objectsOf = ({ params: { node, server } }: RouteMatch) => ({
  ...defined({ server_id: server, node_id: node })
})

/** Logs changes at info level, all else at debug level. Fields of a level that is off are not made. */
export const recordRequest = (
  fiber: Fiber.Fiber<unknown, unknown>,
  exchange: {
    readonly request: HttpServerRequest.HttpServerRequest
    readonly response: HttpServerResponse.HttpServerResponse
    readonly found: RouteMatch
    readonly key_id: string | undefined
    readonly started: number
  }
): Effect.Effect<void> => {
  const { found, key_id, request, response, started } = exchange
  const { method } = request
  const { route } = found
  const took = elapsedMillisOf(fiber.getRef(Clock.Clock)) - started
  const status = statusOf(request, response)
  const { requests, duration } = seriesOf(method, route.path, status)
  requests.updateUnsafe(1, fiber.context)
  duration.updateUnsafe(took / 1000, fiber.context)
  // The store counts refused writes of a full disk and logs them once per second.
  const quiet =
    method === "GET" ||
    method === "HEAD" ||
    status === 507 ||
    route.isRoutine === true ||
    isPublic(route, status) ||
    // 503 while the database is unavailable: no key can be verified.
    isOfStranger(request)
  const level = quiet ? "Debug" : "Info"
  if (LogLevel.isGreaterThan(fiber.getRef(References.MinimumLogLevel), level)) return Effect.void
  const client = clientOf(request)
  return Effect.logWithLevel(level)("request").pipe(
    Effect.annotateLogs({
      method,
      path: pathOf(request.url),
      status,
      duration_ms: took,
      ...(client === null ? {} : { client }),
      ...(key_id === undefined ? {} : { key_id }),
      ...objectsOf(found)
    })
  )
}

export const metricsPage = Effect.map(PrometheusMetrics.format(), (text) =>
  HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" })
)
