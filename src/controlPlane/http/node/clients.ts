/** The client of a request: its address, and the time that its request and its reading may take. */
import type { IncomingMessage } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Duration, Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import { NetAddress } from "effect/net"

const UNKNOWN = "an unknown address"

/** Returns the address of a text, if it is one: IPv4 also if it is mapped into IPv6. */
export const canonicalAddress = (text: string): NetAddress.IpAddress | undefined => {
  const parsed = NetAddress.ipFromString(text.replace(/%.*$/, ""))
  return parsed._tag === "Failure" ? undefined : NetAddress.toCanonical(parsed.success)
}

/** Returns an address as people write it, if it is one. */
export const shownAddress = (text: string): string | null => {
  const address = canonicalAddress(text)
  return address === undefined ? null : NetAddress.formatIp(address)
}

/** Returns the client's address, behind trusted proxies too, if it is known. */
export const clientOf = ({ remoteAddress }: HttpServerRequest.HttpServerRequest): string | null =>
  shownAddress(Option.getOrElse(remoteAddress, () => ""))

/** Returns the address as which a client counts: of IPv6 the /64, which one host has. */
export const countedAddress = (text: string): string => {
  const address = canonicalAddress(text)
  if (address === undefined) return UNKNOWN
  if (NetAddress.isIpv4Address(address)) return NetAddress.formatIp(address)
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4)
  return `${network.map((segment) => segment.toString(16)).join(":")}::/64`
}

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

/** The time in which a body arrives. Node.js has one bound for all requests of a server. */
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
