import { randomUUID } from "node:crypto"
import { Headers, type HttpServerRequest, type HttpServerResponse } from "effect/http"
import { reasonPhrases } from "../domain/ApiError.ts"
import type { Caller } from "./authenticate.ts"
import { isErrorStatus } from "./errorResponse.ts"
import { isApi, requestPath } from "./requestPath.ts"

const acceptable = /^[A-Za-z0-9._-]{1,128}$/

/** Returns the inbound `X-Request-Id` if it is acceptable, else a new one (spec 1). */
export const requestIdOf = (inbound: string | undefined): string =>
  inbound !== undefined && acceptable.test(inbound) ? inbound : randomUUID()

/** Objects made with it are `Headers`; to change the prototype of an object takes V8 longer than all of its properties. */
const headersPrototype: object = Object.getPrototypeOf(Headers.empty)

/** Properties that the making of a response sets. */
type Fields = {
  -readonly [Name in keyof HttpServerResponse.HttpServerResponse]: HttpServerResponse.HttpServerResponse[Name]
}

/** Returns a copy of a response with other headers. */
const withHeaders = (
  response: HttpServerResponse.HttpServerResponse,
  headers: Headers.Headers,
  statusText: string | undefined
): HttpServerResponse.HttpServerResponse => {
  const copy: Fields = Object.create(Object.getPrototypeOf(response))
  copy.status = response.status
  copy.statusText = statusText
  copy.cookies = response.cookies
  copy.body = response.body
  copy.headers = headers
  return copy
}

/**
 * Returns a response with the headers of every response, and the reason phrase of its error body:
 * - the request id, restrictions for browsers, and the headers of the caller, such as `X-RateLimit-*`
 * - under `/api`: `Cache-Control: no-store` unless the route permits storing, and `Vary`, which keeps the responses to
 *   SLS's own clients apart in caches
 * - `Retry-After` at 503, a challenge at 401: the handler of a stream refuses a ticket of another stream
 * - `Connection: close` after an upgrade request, and after a request that timed out and may still be arriving
 */
export const withFinalHeaders = (
  response: HttpServerResponse.HttpServerResponse,
  { headers: ofCaller, isStranger }: Caller,
  given: {
    readonly request: HttpServerRequest.HttpServerRequest
    readonly id: string
    readonly isVarying: boolean
  }
): HttpServerResponse.HttpServerResponse => {
  const { request, id, isVarying } = given
  const { status } = response
  const headers: Headers.Headers & Record<string, string> = Object.create(headersPrototype)
  for (const name in response.headers) headers[name] = response.headers[name] ?? ""
  for (const name in ofCaller) headers[name] = ofCaller[name] ?? ""
  headers["x-request-id"] = id
  headers["x-content-type-options"] = "nosniff"
  headers["referrer-policy"] = "no-referrer"
  if (request.url.startsWith("/api/") || isApi(requestPath(request.url))) {
    headers["cache-control"] ??= "no-store"
    if (isVarying) headers.vary = headers.vary === undefined ? "Accept" : `${headers.vary}, Accept`
  }
  if (status === 401 && !isStranger) headers["www-authenticate"] = "Bearer"
  if (status === 503) headers["retry-after"] ??= "1"
  if (status === 504 || request.headers.upgrade !== undefined) headers.connection = "close"
  return withHeaders(response, headers, isErrorStatus(status) ? reasonPhrases[status] : response.statusText)
}
