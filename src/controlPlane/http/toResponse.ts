import type { Effect } from "effect"
import { HttpServerError, HttpServerRespondable, HttpServerResponse } from "effect/http"
import { type ErrorStatus, errorResponse, reasonPhrases } from "../../contract/domain/ApiError.ts"
import { BodyTooLarge, InternalError, InvalidRequest } from "../../contract/domain/errors.ts"

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
