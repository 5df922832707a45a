/** The 422 of input that does not decode: all reasons together (decisions, section 1; life.md). */
import { Effect, Option, Schema, type SchemaAST, SchemaIssue } from "effect"
import { HttpServerRequest } from "effect/http"
import type { HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest, joinReasons, MOST_REASONS } from "../domain/errors.ts"
import { pathText } from "../domain/json.ts"
import { nearest } from "../domain/nearest.ts"

const UNKNOWN_FIELD = "unknown field"

/** The largest body of which all reasons are looked for, in characters; of a larger one, the first is reported. */
const LARGEST_BODY = 64 * 1024

/** The hint at the parameters of a route that got an unknown one. */
export const useKnown = (known: ReadonlyArray<string>): string =>
  known.length === 0
    ? "Remove the query: this route has no query parameters."
    : `Use the query parameters of this route: ${known.join(", ")}.`

const fieldsOf = (ast: SchemaAST.AST): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

/** Returns what the keys of a record must be; undefined: the object has fixed fields. */
const expectedKey = (ast: SchemaAST.AST): string | undefined =>
  ast._tag === "Objects"
    ? ast.indexSignatures
        .flatMap(({ parameter }) => parameter.checks ?? [])
        .map(({ annotations }) => annotations?.expected)
        .find((expected) => typeof expected === "string")
    : undefined

/** Describes a mistake in the caller's terms, without names of the service's schemas. */
const describeLeaf: SchemaIssue.LeafHook = (issue) => {
  if (issue._tag === "MissingKey") return "required, but missing"
  if (issue._tag === "UnexpectedKey") {
    const key = expectedKey(issue.ast)
    return key === undefined ? [UNKNOWN_FIELD, ...fieldsOf(issue.ast)].join("\n") : `Expected ${key}`
  }
  if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "Expected an object"
  return SchemaIssue.defaultLeafHook(issue)
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({ leafHook: describeLeaf })

/** `Expected CreateServer` and `Expected OverridesEncoded | null` are objects for the caller. */
const inCallersTerms = (message: string): string =>
  message.replace(/^Expected [A-Z]\w+(?= \| null$|$)/, "Expected an object")

const places = { Params: "path", Query: "query", Headers: "header", Payload: "body" } as const
type Place = (typeof places)[keyof typeof places]

interface Reason {
  /** The field's path and the expected value. */
  readonly text: string
  /** The known fields beside an unknown one. */
  readonly known?: ReadonlyArray<string>
}

/** Query parameters that other APIs, or other routes, call by another name. */
const sameParameters = [
  ["limit", "per_page", "page_size", "count", "size"],
  ["after", "page", "offset"],
  ["q", "name", "search", "id"],
  ["include", "fields"]
]

/** Returns the known name that a caller most likely meant. */
const meantBy = (name: string, place: Place, known: ReadonlyArray<string>): string | undefined => {
  const near = nearest(name, known)
  if (near !== undefined || place !== "query") return near
  const others = sameParameters.find((names) => names.includes(name)) ?? []
  return others.find((other) => known.includes(other))
}

const reasonsOf = (issue: SchemaIssue.Issue, place: Place): ReadonlyArray<Reason> =>
  formatIssue(issue).issues.map((found, at) => {
    const steps = (found.path ?? []).map((part) => String(typeof part === "object" ? part.key : part))
    // The names of parameters are no paths.
    const path = place === "body" ? pathText(steps) : steps.join(".")
    const [message = "not as expected", ...known] = found.message.split("\n")
    const name = (steps.at(-1) ?? "").slice(0, 100)
    const near = message === UNKNOWN_FIELD && at < MOST_REASONS ? meantBy(name, place, known) : undefined
    const meant = near === undefined ? "" : `; did you mean ${near}?`
    const field = path === "" ? place : `${place} field ${path.slice(0, 200)}`
    // The values of a query are texts; only a repeated parameter is none.
    const expected =
      place === "query" && message === "Expected string" ? "Expected once, but repeated" : message
    const text = `${field}: ${inCallersTerms(expected).slice(0, 500)}${meant}`
    return message === UNKNOWN_FIELD ? { text, known } : { text }
  })

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
  return decoded._tag === "Failure" ? reasonsOf(decoded.failure.issue, "body") : []
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
