import { Effect, type SchemaAST, SchemaIssue } from "effect"
import {
  HttpServerError,
  type HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse
} from "effect/http"
import type { HttpApiMiddleware } from "effect/http-api"
import { type ErrorStatus, reasonPhrases } from "../domain/ApiError.ts"
import { BodyTooLarge, InvalidRequest } from "../domain/errors.ts"
import { nearest } from "../domain/nearest.ts"
import { RequestId } from "../domain/RequestId.ts"

/** Whether a status is that of a failure. */
export const isErrorStatus = (status: number): status is ErrorStatus => status in reasonPhrases

/** 413. */
export const tooLarge = Effect.fail(new BodyTooLarge({ detail: "the request body is too large" }))

/** Returns the error body of section 7 of the contract, for failures without an error class. */
export const errorResponse = Effect.fnUntraced(function* (
  status: ErrorStatus,
  detail: string,
  hint: string,
  headers: Record<string, string> = {}
) {
  const request_id = yield* RequestId
  return HttpServerResponse.jsonUnsafe(
    { code: String(status), status: reasonPhrases[status], detail, hint, request_id },
    { status, headers }
  )
})

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
  if (HttpServerError.isHttpServerError(failure)) {
    const reason = failure.reason
    if (reason._tag === "RouteNotFound") {
      const methods = allowed(request.url)
      const path = pathOf(request.url)
      if (methods.length === 0)
        return yield* errorResponse(404, `no route for ${request.method} ${path}`, seeDocs)
      const allow = methods.join(", ")
      return request.method === "OPTIONS"
        ? HttpServerResponse.empty({ status: 204, headers: { allow } })
        : yield* errorResponse(405, `${request.method} is not allowed on ${path}`, `Use ${allow}.`, { allow })
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
  return yield* errorResponse(500, "internal server error", "Quote request_id when you report this.")
})

/** Adds the JSON body to an error response without one; other headers stay. */
export const withErrorBody = Effect.fnUntraced(function* (response: HttpServerResponse.HttpServerResponse) {
  if (response.status < 400 || response.headers["content-type"]?.startsWith("application/json"))
    return response
  const status = isErrorStatus(response.status) ? response.status : response.status < 500 ? 422 : 500
  const body = yield* errorResponse(
    status,
    reasonPhrases[status].toLowerCase(),
    status >= 500 ? "Quote request_id when you report this." : seeDocs
  )
  return HttpServerResponse.setHeaders(
    body,
    Object.fromEntries(Object.entries(response.headers).filter(([name]) => !name.startsWith("content-")))
  )
})

const UNKNOWN_FIELD = "unknown field"

const fieldsOf = (ast: SchemaAST.AST): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

/** Describes a mistake in the caller's terms, without names of the service's schemas. */
const describeLeaf: SchemaIssue.LeafHook = (issue) => {
  if (issue._tag === "MissingKey") return "required, but missing"
  if (issue._tag === "UnexpectedKey") return [UNKNOWN_FIELD, ...fieldsOf(issue.ast)].join("\n")
  if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "Expected an object"
  return SchemaIssue.defaultLeafHook(issue)
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({ leafHook: describeLeaf })

/** `Expected CreateServer` and `Expected OverridesEncoded | null` are objects for the caller. */
const inCallersTerms = (message: string): string =>
  message.replace(/^Expected [A-Z]\w+(?= \| null$|$)/, "Expected an object")

const places = { Params: "path", Query: "query", Headers: "header", Payload: "body" } as const

/** Returns the 422 of input that does not decode: the field's path and the expected value. */
export const invalidRequest = (
  error: Parameters<Parameters<typeof HttpApiMiddleware.layerSchemaErrorTransform>[1]>[0]
): InvalidRequest | undefined => {
  // A response that cannot be encoded is a defect of the service, not a bad request.
  if (error.kind === "Body" || error.kind === "ResponseHeaders") return undefined
  const [issue] = formatIssue(error.cause.issue).issues
  const path = (issue?.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".")
  const place = places[error.kind as keyof typeof places] ?? error.kind.toLowerCase()
  const [message = "not as expected", ...known] = (issue?.message ?? "not as expected").split("\n")
  const near =
    message === UNKNOWN_FIELD
      ? nearest(path.slice(path.lastIndexOf(".") + 1).slice(0, 100), known)
      : undefined
  const meant = near === undefined ? "" : `; did you mean ${near}?`
  const at = path === "" ? place : `${place} field ${path.slice(0, 200)}`
  return new InvalidRequest({ detail: `${at}: ${inCallersTerms(message).slice(0, 500)}${meant}` })
}
