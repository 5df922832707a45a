import { Effect, Metric } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { elapsedMillis } from "../domain/elapsed.ts"
import { httpDuration, httpRequests } from "../domain/metrics.ts"
import { clientOf } from "./clientAddress.ts"
import { pathOf } from "./errorResponse.ts"
import type { Route, RouteMatch } from "./RouteTable.ts"
import { isOfStranger } from "./strangers.ts"

const known = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])

/** Returns the metric with labels, made once. Unknown methods share one, so that the labels are bounded. */
const cached = <Input, State>(metric: Metric.Metric<Input, State>) => {
  const made = new Map<string, Metric.Metric<Input, State>>()
  return (method: string, { path }: Route, status?: number) => {
    const labels = {
      method: known.has(method) ? method : "other",
      route: path === "" ? "other" : path,
      ...(status === undefined ? {} : { status: String(status) })
    }
    const key = `${labels.method} ${labels.route} ${status ?? ""}`
    const existing = made.get(key)
    if (existing !== undefined) return existing
    const one = Metric.withAttributes(metric, labels)
    made.set(key, one)
    return one
  }
}

const requests = cached(httpRequests)
const duration = cached(httpDuration)

/** Responses before the request is read: no valid key, over its limit, or (400) no `Host`. */
const unread: ReadonlySet<number> = new Set([400, 401, 429])

/** Whether a caller without a key can cause the response. Failed authentications are counted and logged elsewhere. */
const isPublic = ({ scopes }: Route, status: number): boolean => unread.has(status) || scopes === undefined

/** 101 for a WebSocket: the upgrade has sent it, and the response of the handler is not sent. */
const statusOf = (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse
) => (request.headers.upgrade !== undefined && response.status === 204 ? 101 : response.status)

/** The objects that a request names in its path, as fields of the log. */
const objectsOf = ({ params: { node, server } }: RouteMatch) => ({
  ...(server === undefined ? {} : { server_id: server }),
  ...(node === undefined ? {} : { node_id: node })
})

/**
 * Counts and logs a request: changes at info level; reads, calls of daemons and public responses at debug level.
 *
 * @param exchange.key_id  of the caller
 * @param exchange.started time of {@link elapsedMillis}
 */
export const recordRequest = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse,
  found: RouteMatch,
  exchange: { readonly key_id: string | undefined; readonly started: number }
) {
  const { route } = found
  const took = (yield* elapsedMillis) - exchange.started
  const status = statusOf(request, response)
  yield* Metric.update(requests(request.method, route, status), 1)
  yield* Metric.update(duration(request.method, route), took / 1000)
  const { method } = request
  const path = pathOf(request.url)
  // The store counts refused writes of a full disk and logs them once per second.
  const quiet =
    request.method === "GET" ||
    request.method === "HEAD" ||
    status === 507 ||
    route.isRoutine ||
    isPublic(route, status) ||
    // 503 while the database is unavailable: no key can be verified.
    isOfStranger(request)
  yield* (quiet ? Effect.logDebug("request") : Effect.logInfo("request")).pipe(
    Effect.annotateLogs({
      method,
      path,
      status,
      duration_ms: took,
      client: clientOf(request),
      ...(exchange.key_id === undefined ? {} : { key_id: exchange.key_id }),
      ...objectsOf(found)
    })
  )
})

/** The page of `/metrics` in the text format of Prometheus. */
export const metricsPage = Effect.map(PrometheusMetrics.format(), (text) =>
  HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" })
)
