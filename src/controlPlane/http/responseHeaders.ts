import { randomUUID } from "node:crypto"
import { Effect } from "effect"
import {
  HttpMiddleware,
  HttpServerError,
  type HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse
} from "effect/http"
import { type ErrorStatus, errorResponse, reasonPhrases } from "../../contract/domain/ApiError.ts"
import { BodyTooLarge, InternalError, InvalidRequest } from "../../contract/domain/errors.ts"
import type { Caller } from "./authenticate.ts"
import { isApi, requestPath } from "./requestUrl.ts"

export const isErrorStatus = (status: number): status is ErrorStatus => status in reasonPhrases

export const bodyTooLarge = new BodyTooLarge({ detail: "the request body is too large" })

/** Returns the response of a failed request: errors of the contract unchanged, all else as a 500 without details. */
export const toResponse = (failure: unknown): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  if (HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RequestParseError") {
    return toResponse(
      failure.reason.reason === "BodyTooLarge"
        ? bodyTooLarge
        : new InvalidRequest({ detail: "the request body could not be read" })
    )
  }
  return HttpServerRespondable.toResponse(
    HttpServerRespondable.isRespondable(failure)
      ? failure
      : new InternalError({ detail: "internal server error" })
  )
}

/** Adds the JSON body to an error response without one; other headers stay. */
export const withErrorBody = (
  response: HttpServerResponse.HttpServerResponse,
  request_id: string
): HttpServerResponse.HttpServerResponse => {
  if (response.status < 400 || response.headers["content-type"]?.startsWith("application/json"))
    return response
  const status = isErrorStatus(response.status) ? response.status : response.status < 500 ? 422 : 500
  const detail = reasonPhrases[status].toLowerCase()
  const hint = status >= 500 ? "Quote request_id when you report this." : "Check the path against /docs."
  const headers = Object.entries(response.headers).filter(([name]) => !name.startsWith("content-"))
  return HttpServerResponse.setHeaders(
    errorResponse(status, { detail, hint }, request_id),
    Object.fromEntries(headers)
  )
}

const acceptable = /^[A-Za-z0-9._-]{1,128}$/

/** Returns the inbound `X-Request-Id` if it is acceptable, else a new one (spec 1). */
export const requestIdOf = (inbound: string | undefined): string =>
  inbound !== undefined && acceptable.test(inbound) ? inbound : randomUUID()

type Preflight = Effect.Effect<
  HttpServerResponse.HttpServerResponse | undefined,
  never,
  HttpServerRequest.HttpServerRequest
>

/** Returns the response to a preflight; other responses get the headers of CORS. */
export const makePreflight = (corsOrigins: ReadonlyArray<string>): Preflight => {
  if (corsOrigins.length === 0) return Effect.succeed(undefined)
  const cors = HttpMiddleware.cors({
    allowedOrigins: (origin) => corsOrigins.includes("*") || corsOrigins.includes(origin),
    allowedHeaders: [
      "authorization",
      "content-digest",
      "content-type",
      "idempotency-key",
      "if-match",
      "if-none-match",
      "if-range",
      "last-event-id",
      "prefer",
      "range",
      "tus-resumable",
      "upload-checksum",
      "upload-length",
      "upload-metadata",
      "upload-offset",
      "x-request-id"
    ],
    exposedHeaders: [
      "x-request-id",
      "accept-ranges",
      "content-disposition",
      "content-range",
      "etag",
      "link",
      "location",
      "preference-applied",
      "retry-after",
      "tus-checksum-algorithm",
      "tus-extension",
      "tus-resumable",
      "tus-version",
      "upload-expires",
      "upload-length",
      "upload-metadata",
      "upload-offset",
      "x-muster-cursor",
      "x-muster-incomplete",
      "x-muster-timed-out",
      "x-ratelimit-limit",
      "x-ratelimit-remaining",
      "x-ratelimit-reset"
    ],
    maxAge: 600
  })
  return Effect.catch(cors(Effect.fail("no preflight")), () => Effect.succeed(undefined))
}

/**
 * Returns a response with its final headers and the reason phrase of its error body. `Vary` keeps responses to SLS's
 * own clients apart in caches; `Connection: close` follows an upgrade, and a timed-out request that may still be
 * arriving.
 */
export const withFinalHeaders = (
  response: HttpServerResponse.HttpServerResponse,
  { headers: ofCaller }: Caller,
  given: {
    readonly request: HttpServerRequest.HttpServerRequest
    readonly id: string
    readonly isVarying: boolean
    readonly ofRoute?: Readonly<Record<string, string>> | undefined
  }
): HttpServerResponse.HttpServerResponse => {
  const { request, id, isVarying, ofRoute } = given
  const { status } = response
  const headers: Record<string, string> = {
    ...ofRoute,
    ...ofCaller,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer"
  }
  if (request.url.startsWith("/api/") || isApi(requestPath(request.url))) {
    if (response.headers["cache-control"] === undefined) headers["cache-control"] = "no-store"
    if (isVarying)
      headers.vary = response.headers.vary === undefined ? "Accept" : `${response.headers.vary}, Accept`
  }
  if (status === 401) headers["www-authenticate"] = "Bearer"
  if (status === 503 && response.headers["retry-after"] === undefined) headers["retry-after"] = "1"
  if (status === 504 || request.headers.upgrade !== undefined) headers.connection = "close"
  // `setHeader` has copied the headers, and the names are lower-case: a second copy would be the same.
  const final = HttpServerResponse.setHeader(response, "x-request-id", id)
  Object.assign(final.headers, headers)
  return isErrorStatus(status) ? HttpServerResponse.setStatus(final, status, reasonPhrases[status]) : final
}
