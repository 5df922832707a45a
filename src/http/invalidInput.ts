/** The 422 of input that does not decode: all reasons together (spec 1.4). */
import { Effect, Option, Schema } from "effect"
import { HttpServerRequest } from "effect/http"
import type { HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest, joinReasons } from "../domain/errors.ts"
import { places, reasonsOf } from "../domain/mistakes.ts"

/** The largest body of which all reasons are looked for, in characters; of a larger one, the first is reported. */
const LARGEST_BODY = 64 * 1024

/** The hint at the parameters of a route that got an unknown one. */
export const useKnown = (known: ReadonlyArray<string>): string =>
  known.length === 0
    ? "Remove the query: this route has no query parameters."
    : `Use the query parameters of this route: ${known.join(", ")}.`

const json = Option.liftThrowable((text: string): unknown => JSON.parse(text))

/** Returns all reasons against the body of a request; none: it is valid, too large for that, or no JSON. */
const bodyReasons = Effect.fnUntraced(function* ({ payload }: HttpApiEndpoint.Top) {
  const schemas = [...payload.values()].flatMap(({ encoding, schemas }) =>
    encoding._tag === "Json" ? schemas : []
  )
  if (schemas.length === 0) return []
  const request = yield* HttpServerRequest.HttpServerRequest
  const text = yield* Effect.orElseSucceed(request.text, () => "")
  const body = text.length > LARGEST_BODY ? Option.none() : json(text)
  if (Option.isNone(body)) return []
  const schema = Schema.make<Schema.Codec<unknown>>(Schema.Union(schemas).ast)
  const decoded = yield* Effect.result(
    Schema.decodeUnknownEffect(schema, { errors: "all", onExcessProperty: "error" })(body.value)
  )
  return decoded._tag === "Failure" ? reasonsOf(decoded.failure.issue, "body", body.value) : []
})

/** Returns the 422 of input that does not decode; undefined: a response cannot be encoded, a defect of the service. */
export const invalidInput = Effect.fnUntraced(function* (
  error: Parameters<Parameters<typeof HttpApiMiddleware.layerSchemaErrorTransform>[1]>[0],
  endpoint: HttpApiEndpoint.Top
) {
  const place = places[error.kind as keyof typeof places]
  if (place === undefined) return undefined
  const first = reasonsOf(error.cause.issue, place)
  const body = yield* bodyReasons(endpoint)
  const reasons = place === "body" ? (body.length === 0 ? first : body) : [...first, ...body]
  const known = place === "query" ? first.find(({ known }) => known !== undefined)?.known : undefined
  return new InvalidRequest({
    detail: joinReasons(reasons.map(({ text }) => text)),
    ...(known === undefined ? {} : { hint: useKnown(known) })
  })
})
