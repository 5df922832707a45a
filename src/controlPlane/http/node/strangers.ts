import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Duration } from "effect"
import type { HttpServerRequest } from "effect/http"

const READING = Duration.seconds(60)

/** Event of a response without a principal: it is written completely, and the peer only reads. */
export const ONLY_READ = "muster-only-read"

const strangers = new WeakSet<object>()

/** Whether the request has no valid key: the path needs none, or authentication failed. */
export const isOfStranger = (request: HttpServerRequest.HttpServerRequest): boolean =>
  strangers.has(NodeHttpServerRequest.toIncomingMessage(request))

/** Call this once the response is known: a slow peer without a principal would hold the connection for hours. */
export const boundReading = (request: HttpServerRequest.HttpServerRequest, reading = READING): void => {
  const incoming = NodeHttpServerRequest.toIncomingMessage(request)
  const response = NodeHttpServerRequest.toServerResponse(request)
  strangers.add(incoming)
  response.once("prefinish", () => {
    response.emit(ONLY_READ)
    const timer = setTimeout(() => incoming.socket.destroy(), Duration.toMillis(reading))
    response.once("close", () => clearTimeout(timer))
  })
}
