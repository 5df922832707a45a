import { Effect, Metric } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { elapsedMillis } from "../domain/elapsed.ts"
import { pathOf } from "./errorResponse.ts"
import { isApi, requestPath } from "./requestPath.ts"
import { isOfStranger } from "./strangers.ts"

const requests = Metric.counter("muster_http_requests_total", {
  description: "Requests answered, by method and status.",
  incremental: true
})
const duration = Metric.histogram("muster_http_request_duration_seconds", {
  description: "Time to the head of the answer.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
})

const counters = new Map<string, typeof requests>()
const known = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])

/** The counter of one method and status, made once. Unknown methods share one, so that labels stay few. */
const counterOf = (method: string, status: number) => {
  const label = known.has(method) ? method : "other"
  const key = `${label} ${status}`
  const existing = counters.get(key)
  if (existing !== undefined) return existing
  const made = Metric.withAttributes(requests, { method: label, status: String(status) })
  counters.set(key, made)
  return made
}

/** Heartbeats and reports of daemons come all the time. */
const routine = /^\/api\/nodes\/[^/]+\/internal\//

/** Without a valid key, or above its limit; 400: without `Host`, which is refused before the key is looked at. */
const unread: ReadonlySet<number> = new Set([400, 401, 429])

/** Whether strangers can have this answer as often as they like. Failed authentications are counted and logged elsewhere. */
const isForStrangers = (url: string, status: number): boolean =>
  unread.has(status) || !isApi(requestPath(url))

/** A WebSocket was answered with 101 by its upgrade; what its handler returns at its end is no answer. */
const statusOf = (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse
) => (request.headers.upgrade !== undefined && response.status === 204 ? 101 : response.status)

/** Counts an answered request and logs it: reads, what daemons send and what strangers get at debug level, changes at info. */
export const recordRequest = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse,
  started: number
) {
  const took = (yield* elapsedMillis) - started
  const status = statusOf(request, response)
  yield* Metric.update(counterOf(request.method, status), 1)
  yield* Metric.update(duration, took / 1000)
  const { method } = request
  const path = pathOf(request.url)
  // Refused writes of a full disk are counted and logged once per second by the store.
  const quiet =
    request.method === "GET" ||
    request.method === "HEAD" ||
    status === 507 ||
    routine.test(request.url) ||
    isForStrangers(request.url, status) ||
    // 503 while the database cannot be reached: no key can be looked up.
    isOfStranger(request)
  const line = `${method} ${path} ${status} ${took} ms`
  yield* (quiet ? Effect.logDebug(line) : Effect.logInfo(line)).pipe(
    Effect.annotateLogs({ method, path, status, duration_ms: took })
  )
})
