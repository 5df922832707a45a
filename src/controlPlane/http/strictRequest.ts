import { isUtf8 } from "node:buffer"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, Fiber, type Scope } from "effect"
import { Headers, type HttpServerRequest } from "effect/http"
import { BadRequest, InvalidRequest, joinReasons, NotFound } from "../../contract/domain/errors.ts"
import type { Route, RouteMatch } from "./routes.ts"

/** A proxy may read another value than this service. */
const single = ["host", "authorization"]

/** A host and a port; a list, a path or a user is none (RFC 9110, section 7.2). */
const hostPattern = /^[^\s,/?#@\\]*$/

/** @error BadRequest (RFC 9112, section 3.2) */
export const strictHead = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, BadRequest> => {
  const { httpVersion, rawHeaders } = NodeHttpServerRequest.toIncomingMessage(request)
  const seen: Array<string> = []
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ""
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (!single.includes(lower)) continue
    if (seen.includes(lower)) return new BadRequest({ detail: `the request has several ${name} headers` })
    if (lower === "host" && !hostPattern.test(rawHeaders[at + 1] ?? ""))
      return new BadRequest({ detail: "the Host header is invalid" })
    seen.push(lower)
  }
  return httpVersion === "1.1" && !seen.includes("host")
    ? new BadRequest({ detail: "the Host header is missing" })
    : Effect.void
}

/** Declares a body as JSON, regardless of its `Content-Type` (spec 1.2). */
export const asJson = (request: HttpServerRequest.HttpServerRequest) => {
  const type = request.headers["content-type"]
  return type === undefined || type === "application/json"
    ? request
    : request.modify({ headers: Headers.set(request.headers, "content-type", "application/json") })
}

const decoder = new TextDecoder("utf-8", { fatal: true })

const notUtf8 = (place: "body" | "query") =>
  new InvalidRequest({ detail: `${place}: not valid UTF-8`, hint: `Encode the ${place} as UTF-8.` })

const QUOTE = 0x22
const BACKSLASH = 0x5c
/** A comma, `[` and `{`: at least one for each value in an array or object, but for those outside of strings. */
const beginsValue = (code: number) => code === 0x2c || code === 0x5b || code === 0x7b

/** Whether a JSON text has more than `most` arrays, objects and values in them. The text need not be valid. */
export const hasMoreValues = (text: string, most: number): boolean => {
  let count = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      let escapes = 1
      while (escapes % 2 === 1) {
        at = text.indexOf('"', at + 1)
        if (at === -1) return false
        escapes = 0
        while (text.charCodeAt(at - escapes - 1) === BACKSLASH) escapes++
      }
    } else if (beginsValue(code) && ++count > most) return true
  }
  return false
}

const tooManyValues = (most: number) =>
  new InvalidRequest({
    detail: `body: more than ${most} values in arrays and objects`,
    hint: "Split the request into several."
  })

export const hasBody = ({ headers }: HttpServerRequest.HttpServerRequest): boolean =>
  headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined

/**
 * Makes a body strict: one that is not UTF-8, or has more than `mostValues`, is 422 before it is parsed (spec 1.9).
 * Interrupted reads continue in `scope`, so the response follows on the connection.
 */
export const strictBody = (
  request: HttpServerRequest.HttpServerRequest,
  scope: Scope.Scope,
  mostValues: number,
  counted: <A, E>(read: Effect.Effect<A, E>) => Effect.Effect<A, E>
) => {
  if (!hasBody(request)) return request
  const read = counted(request.arrayBuffer)
  let arrived: ArrayBuffer | undefined
  const arrayBuffer = Effect.suspend(() =>
    arrived === undefined
      ? Effect.flatMap(Effect.forkIn(read, scope, { startImmediately: true }), Fiber.join)
      : Effect.succeed(arrived)
  ).pipe(
    Effect.tap((bytes) =>
      Effect.sync(() => {
        arrived = bytes
      })
    )
  )
  const text = arrayBuffer.pipe(
    Effect.flatMap((bytes) => Effect.try({ try: () => decoder.decode(bytes), catch: () => notUtf8("body") })),
    Effect.filterOrFail(
      (decoded) => mostValues === Number.POSITIVE_INFINITY || !hasMoreValues(decoded, mostValues),
      () => tooManyValues(mostValues)
    ),
    Effect.orDie
  )
  return Object.defineProperties(request, { arrayBuffer: { value: arrayBuffer }, text: { value: text } })
}

export const useKnown = (known: ReadonlyArray<string>): string =>
  known.length === 0
    ? "Remove the query: this route has no query parameters."
    : `Use the query parameters of this route: ${known.join(", ")}.`

const escapes = /(?:%[0-9a-f]{2})+/gi

const isEscapedUtf8 = (query: string) =>
  (query.match(escapes) ?? []).every((run) => isUtf8(Buffer.from(run.replaceAll("%", ""), "hex")))

const HAS_NUL = "has a NUL character"
const WITHOUT_NUL = "Leave the escape %00 out."

/** Returns 404 for path parameters that no object has and that PostgreSQL does not take. */
export const strictPath = (url: string, params: RouteMatch["params"]): Effect.Effect<void, NotFound> => {
  if (!url.includes("%00")) return Effect.void
  let wrong: string | undefined
  for (const name in params) if (params[name]?.includes("\0")) wrong ??= name
  return wrong === undefined
    ? Effect.void
    : new NotFound({ detail: `path field ${wrong}: ${HAS_NUL}`, hint: WITHOUT_NUL })
}

/**
 * Checks the query (spec 1.2, "422"); a route that declares parameters checks their names itself.
 * @error InvalidRequest the escapes are not UTF-8 or have a NUL, or the route declares no parameters
 */
export const strictQuery = (query: string, route: Route): Effect.Effect<void, InvalidRequest> => {
  if (query === "") return Effect.void
  if (route.hasQueryFallbacks !== true && !isEscapedUtf8(query)) return Effect.fail(notUtf8("query"))
  if (route.hasQueryFallbacks !== true && query.includes("%00")) {
    return new InvalidRequest({ detail: `query: ${HAS_NUL}`, hint: WITHOUT_NUL })
  }
  if (route.query?.length !== 0) return Effect.void
  const given = [...new URLSearchParams(query).keys()]
  return given.length === 0
    ? Effect.void
    : new InvalidRequest({
        detail: joinReasons(given.map((name) => `query field ${name.slice(0, 100)}: unknown field`)),
        hint: useKnown([])
      })
}
