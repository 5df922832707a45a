import { Effect } from "effect"
import {
  HttpServerError,
  type HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse
} from "effect/http"
import { type ErrorStatus, reasonPhrases } from "../domain/ApiError.ts"
import { BodyTooLarge, InvalidRequest } from "../domain/errors.ts"
import { RequestId } from "../domain/RequestId.ts"

/** Whether a status is that of a failure. */
export const isErrorStatus = (status: number): status is ErrorStatus => status in reasonPhrases

/** 413. */
export const tooLarge = Effect.fail(new BodyTooLarge({ detail: "the request body is too large" }))

/** Returns the error body of spec 1.4, for failures without an error class. */
export const errorResponse = (
  request_id: string | undefined,
  status: ErrorStatus,
  detail: string,
  hint: string,
  headers: Record<string, string> = {}
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(
    { code: String(status), status: reasonPhrases[status], detail, hint, request_id },
    { status, headers }
  )

const seeDocs = "Check the path against /docs."

/** Returns the path of a request for messages: without its query, shortened. */
export const pathOf = (url: string): string => {
  const end = url.search(/[?#]/)
  return (end === -1 ? url : url.slice(0, end)).slice(0, 200)
}

/**
 * Returns the response of a failed request: errors of the contract unchanged, misses of the router as 404 or 405 with
 * `Allow`, anything else as a 500 without details.
 */
export const responseOf = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  failure: unknown,
  allowed: (url: string) => ReadonlyArray<string>
) {
  if (HttpServerResponse.isHttpServerResponse(failure)) return failure
  const id = yield* RequestId
  if (HttpServerError.isHttpServerError(failure)) {
    const reason = failure.reason
    if (reason._tag === "RouteNotFound") {
      const methods = allowed(request.url)
      const path = pathOf(request.url)
      if (methods.length === 0)
        return errorResponse(id, 404, `no route for ${request.method} ${path}`, seeDocs)
      const allow = methods.join(", ")
      return request.method === "OPTIONS"
        ? HttpServerResponse.empty({ status: 204, headers: { allow } })
        : errorResponse(id, 405, `${request.method} is not allowed on ${path}`, `Use ${allow}.`, { allow })
    }
    if (reason._tag === "RequestParseError") {
      return yield* HttpServerRespondable.toResponse(
        reason.reason === "BodyTooLarge"
          ? new BodyTooLarge({ detail: "the request body is too large" })
          : new InvalidRequest({ detail: "the request body could not be read" })
      )
    }
  }
  if (HttpServerRespondable.isRespondable(failure)) return yield* HttpServerRespondable.toResponse(failure)
  return errorResponse(id, 500, "internal server error", "Quote request_id when you report this.")
})

/** Adds the JSON body to an error response without one; other headers stay. */
export const withErrorBody = (
  response: HttpServerResponse.HttpServerResponse,
  request_id: string
): HttpServerResponse.HttpServerResponse => {
  if (response.status < 400 || response.headers["content-type"]?.startsWith("application/json"))
    return response
  const status = isErrorStatus(response.status) ? response.status : response.status < 500 ? 422 : 500
  const body = errorResponse(
    request_id,
    status,
    reasonPhrases[status].toLowerCase(),
    status >= 500 ? "Quote request_id when you report this." : seeDocs
  )
  return HttpServerResponse.setHeaders(
    body,
    Object.fromEntries(Object.entries(response.headers).filter(([name]) => !name.startsWith("content-")))
  )
}
