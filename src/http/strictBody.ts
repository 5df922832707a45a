import { isUtf8 } from "node:buffer"
import { Effect, Fiber, type Scope } from "effect"
import type { HttpServerRequest } from "effect/http"
import { InvalidRequest } from "../domain/errors.ts"

const decoder = new TextDecoder("utf-8", { fatal: true })

const notUtf8 = (place: "body" | "query") =>
  new InvalidRequest({ detail: `${place}: not valid UTF-8`, hint: `Encode the ${place} as UTF-8.` })

/**
 * Makes the body of a request strict and interruptible. A body that is read as text and is not UTF-8 is 422, where bytes
 * would be replaced silently. A read that is given up does not end the connection, on which the answer is still to be
 * sent; the read ends with the connection.
 *
 * @param scope owns reads that are given up
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

/** @error InvalidRequest the escapes of a query are not UTF-8 */
export const strictQuery = (query: string): Effect.Effect<void, InvalidRequest> => {
  const runs = query.match(escapes) ?? []
  return runs.every((run) => isUtf8(Buffer.from(run.replaceAll("%", ""), "hex")))
    ? Effect.void
    : Effect.fail(notUtf8("query"))
}
