import { isUtf8 } from "node:buffer"
import { Effect, Fiber, type Scope } from "effect"
import type { HttpServerRequest } from "effect/http"
import { InvalidRequest } from "../domain/errors.ts"
import { nearest } from "../domain/nearest.ts"
import type { Route } from "./RouteTable.ts"

const decoder = new TextDecoder("utf-8", { fatal: true })

const notUtf8 = (place: "body" | "query") =>
  new InvalidRequest({ detail: `${place}: not valid UTF-8`, hint: `Encode the ${place} as UTF-8.` })

/**
 * Makes the body of a request strict and interruptible. A body that is read as text and is not UTF-8 is 422; otherwise
 * bytes would be replaced silently. An interrupted read does not end the connection, on which the response follows; the
 * read ends with the connection.
 *
 * @param scope owns interrupted reads
 */
export const strictBody = (request: HttpServerRequest.HttpServerRequest, scope: Scope.Scope) => {
  const { headers } = request
  if (headers["content-length"] === undefined && headers["transfer-encoding"] === undefined) return request
  const arrayBuffer = request.arrayBuffer.pipe(Effect.forkIn(scope), Effect.flatMap(Fiber.join))
  const text = Effect.flatMap(arrayBuffer, (bytes) =>
    Effect.orDie(Effect.try({ try: () => decoder.decode(bytes), catch: () => notUtf8("body") }))
  )
  return Object.defineProperties(request, { arrayBuffer: { value: arrayBuffer }, text: { value: text } })
}

const escapes = /(?:%[0-9a-f]{2})+/gi

const isEscapedUtf8 = (query: string) =>
  (query.match(escapes) ?? []).every((run) => isUtf8(Buffer.from(run.replaceAll("%", ""), "hex")))

const unknownParameter = (name: string, known: ReadonlyArray<string>) => {
  const near = nearest(name, known)
  return new InvalidRequest({
    detail: `query field ${name.slice(0, 100)}: unknown field${near === undefined ? "" : `; did you mean ${near}?`}`,
    hint:
      known.length === 0
        ? "Remove the query: this route has no query parameters."
        : `Use the query parameters of this route: ${known.join(", ")}.`
  })
}

/**
 * Checks the query of a request against the declared parameters of its route (decisions, section 1, "422").
 *
 * @error InvalidRequest the escapes are not UTF-8, or the route does not declare a parameter
 */
export const strictQuery = (query: string, route: Route): Effect.Effect<void, InvalidRequest> => {
  if (query === "") return Effect.void
  if (!route.hasQueryFallbacks && !isEscapedUtf8(query)) return Effect.fail(notUtf8("query"))
  const { query: known } = route
  if (known === undefined) return Effect.void
  const unknown = [...new URLSearchParams(query).keys()].find((name) => !known.includes(name))
  return unknown === undefined ? Effect.void : Effect.fail(unknownParameter(unknown, known))
}
