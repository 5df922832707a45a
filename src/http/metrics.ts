import { Effect, Metric } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { elapsedMillis } from "../domain/elapsed.ts"
import { pathOf } from "./errorResponse.ts"
import type { Route } from "./RouteTable.ts"
import { isOfStranger } from "./strangers.ts"

const requests = Metric.counter("muster_http_requests_total", {
  description: "Requests by method and status.",
  incremental: true
})
const duration = Metric.histogram("muster_http_request_duration_seconds", {
  description: "Time to the head of the response.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
})

const counters = new Map<string, typeof requests>()
const known = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])

/** The counter of a method and status. Unknown methods share one, so that the labels are bounded. */
const counterOf = (method: string, status: number) => {
  const label = known.has(method) ? method : "other"
  const key = `${label} ${status}`
  const existing = counters.get(key)
  if (existing !== undefined) return existing
  const made = Metric.withAttributes(requests, { method: label, status: String(status) })
  counters.set(key, made)
  return made
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

/** Counts and logs a request: changes at info level; reads, calls of daemons and public responses at debug level. */
export const recordRequest = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse,
  route: Route,
  started: number
) {
  const took = (yield* elapsedMillis) - started
  const status = statusOf(request, response)
  yield* Metric.update(counterOf(request.method, status), 1)
  yield* Metric.update(duration, took / 1000)
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
    Effect.annotateLogs({ method, path, status, duration_ms: took })
  )
})
