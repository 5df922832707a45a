import { Context, Effect, ErrorReporter, Option, Schema, SchemaGetter } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"

export const reasonPhrases = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  409: "Conflict",
  410: "Gone",
  412: "Precondition Failed",
  413: "Content Too Large",
  414: "URI Too Long",
  416: "Range Not Satisfiable",
  422: "Unprocessable Content",
  423: "Locked",
  426: "Upgrade Required",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  460: "Checksum Mismatch",
  500: "Internal Server Error",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  507: "Insufficient Storage"
} as const

export type ErrorStatus = keyof typeof reasonPhrases

interface ErrorText {
  /** Why the request failed, with the value. */
  readonly detail: string
  /** The next step of the caller, as an imperative. */
  readonly hint: string
}

/** Returns the body of every failure (spec 1.4). */
export const errorBody = (
  status: ErrorStatus,
  { detail, hint }: ErrorText,
  request_id: string | undefined
) => ({
  code: String(status),
  status: reasonPhrases[status],
  detail,
  hint,
  request_id
})

export const errorResponse = (status: ErrorStatus, text: ErrorText, request_id: string | undefined) =>
  HttpServerResponse.jsonUnsafe(errorBody(status, text, request_id), { status })

/** The request id. Constructors leave it out; encoding takes it from {@link RequestId}. */
const RequestIdField = Schema.optionalKey(Schema.String).pipe(
  Schema.encodeTo(Schema.optionalKey(Schema.String), {
    decode: SchemaGetter.passthrough(),
    encode: SchemaGetter.transformOptionalEffect((current: Option.Option<string>) =>
      Effect.map(RequestId, (id) => Option.orElse(current, () => Option.fromUndefinedOr(id)))
    )
  })
)

const errorFields = <const S extends ErrorStatus>(status: S, hint: string) => ({
  code: Schema.tag(`${status}` as `${S}`),
  status: Schema.tag(reasonPhrases[status]),
  detail: Schema.String,
  hint: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(hint))),
  request_id: RequestIdField
})

/**
 * The base of errors that callers see: the body of spec 1.4. `_tag` lives on the prototype, so the body has no sixth
 * field. `hint` is the default next step.
 */
export const ApiError =
  <Self = never>() =>
  <const Tag extends string, const S extends ErrorStatus>(tag: Tag, status: S, hint: string) => {
    const Base = Schema.Error<Self, { readonly _tag: Tag } & HttpServerRespondable.Respondable>(tag)(
      errorFields(status, hint),
      {
        httpApiStatus: status
      }
    )
    // A class expression's prototype is not in the type that Schema.Error returns.
    const prototype = (Base as unknown as { prototype: object }).prototype
    Object.assign(prototype, {
      _tag: tag,
      [ErrorReporter.ignore]: status < 500,
      [HttpServerRespondable.symbol](this: ErrorText & { readonly request_id?: string }) {
        return Effect.map(RequestId, (id) => errorResponse(status, this, this.request_id ?? id))
      }
    })
    Object.defineProperty(prototype, "message", {
      get(this: { readonly detail: string }) {
        return this.detail
      }
    })
    return Base
  }

/** The id of the request that the current fiber serves, if any; on log lines and error bodies (spec 1). */
export const RequestId = Context.Reference<string | undefined>("muster/domain/RequestId", {
  defaultValue: () => undefined
})
