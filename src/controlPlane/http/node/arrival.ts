/** The time in which the body of a request arrives. Node.js has one bound for all requests of a server. */
import type { IncomingMessage } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import type { HttpServerRequest } from "effect/http"

const ARRIVAL_MILLIS = 120_000

const timers = new WeakMap<object, NodeJS.Timeout>()

/** Runs `onLate` if the body of a request has not arrived in time. */
export const boundArrival = (request: IncomingMessage, onLate: () => void): void => {
  const { headers } = request
  if (headers["content-length"] === undefined && headers["transfer-encoding"] === undefined) return
  const timer = setTimeout(onLate, ARRIVAL_MILLIS)
  const clear = () => clearTimeout(timer)
  request.once("end", clear).once("close", clear)
  timers.set(request, timer)
}

/** Keeps a connection open without a byte for as long as the handler of its request may take. */
export const allowSilence = (request: HttpServerRequest.HttpServerRequest, seconds: number): void => {
  const { socket } = NodeHttpServerRequest.toIncomingMessage(request)
  if (seconds * 1000 > ARRIVAL_MILLIS) socket.setTimeout(seconds * 1000)
}

/** Lets a body take as long as its bytes come; a connection without any byte for 120 s is closed all the same. */
export const unboundArrival = (request: HttpServerRequest.HttpServerRequest): void =>
  clearTimeout(timers.get(NodeHttpServerRequest.toIncomingMessage(request)))
