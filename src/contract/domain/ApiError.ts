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

/** The statuses of errors, and their default next steps. */
const kinds = {
  BadRequest: [400, "Send a well-formed HTTP/1.1 request."],
  Unauthorized: [401, "Send the header `Authorization: Bearer <key>`."],
  Forbidden: [
    403,
    "Use a key with this scope or right: `muster keys create --scope` and `--allow` make one."
  ],
  NotFound: [404, "Check the id; the list route shows what exists."],
  MethodNotAllowed: [405, "Use a method that `Allow` names."],
  Conflict: [409, "Read the current state and try again."],
  CursorExpired: [
    410,
    "List the servers again (GET /api/servers), then open the stream with the X-Muster-Cursor of that list as cursor: no change is missed."
  ],
  PreconditionFailed: [412, "Read the file again, and repeat the change with its new ETag."],
  BodyTooLarge: [413, "Send a smaller body."],
  RangeNotSatisfiable: [416, "Ask for bytes below the size of the file."],
  InvalidRequest: [422, "Correct the field that `detail` names; /docs describes every route."],
  Locked: [423, "Wait until the other request has ended, then ask for the offset and continue there."],
  UpgradeRequired: [426, "Open this path with a WebSocket client."],
  TooManyRequests: [429, "Wait for the seconds that `Retry-After` names."],
  ChecksumMismatch: [460, "Send the bytes again from the same offset; they were changed on their way."],
  InternalError: [500, "Quote request_id when you report this."],
  NodeFailure: [502, "Read the log of the node; quote request_id."],
  SourceFailed: [
    502,
    "The definitions of the last successful sync stay in use. Correct the cause, then reload."
  ],
  Unavailable: [503, "Try again shortly."],
  TimedOut: [504, "The work may continue; read the current state before a repetition."],
  InsufficientStorage: [507, "Free space on the disk of the database."]
} as const

/**
 * The base of errors that callers see: the body of spec 1.4. `_tag` lives on the prototype, so the body has no sixth
 * field.
 */
export const ApiError =
  <Self = never>() =>
  <const Tag extends keyof typeof kinds>(tag: Tag) => {
    const status = kinds[tag][0]
    const Base = Schema.Error<Self, { readonly _tag: Tag } & HttpServerRespondable.Respondable>(tag)(
      errorFields(status, kinds[tag][1]),
      { httpApiStatus: status }
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
