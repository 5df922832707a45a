/**
 * The WebSocket of an upgraded request. The platform's socket reads and writes, but it cannot ping, report unsent
 * bytes, or end a connection with a silent peer.
 */
import type { Writable } from "node:stream"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import * as NodeWS from "@effect/platform-node/NodeWS"
import { Context, Effect, Fiber, type Scope } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { Socket } from "effect/socket"
import { InvalidRequest, UpgradeRequired } from "../../contract/domain/errors.ts"

/** Called with the WebSocket that is made while the current fiber upgrades a request. */
const OnWebSocket = Context.Reference<((webSocket: NodeWS.WebSocket) => void) | undefined>(
  "muster/events/OnWebSocket",
  { defaultValue: () => undefined }
)

/** Reports itself to the upgrading fiber, as the handshake is synchronous. */
class KnownWebSocket extends NodeWS.WebSocket {
  // A field instead of a constructor, which would lose the inherited overloads.
  protected readonly announced = Fiber.getCurrent()?.getRef(OnWebSocket)?.(this)
}

/** Options of `NodeHttpServer`: frames over 64 KiB close with 1009 (spec 5), and a peer answers a close in 5 s. */
export const webSocketOptions = {
  WebSocket: KnownWebSocket,
  maxPayload: 64 * 1024,
  closeTimeout: 5000
}

/** Frames that a peer may send before earlier ones are processed; empty frames count towards no bound of bytes. */
export const MOST_FRAMES = 10_000

export interface Upgraded {
  readonly webSocket: NodeWS.WebSocket
  /** Next frames of the peer: text as strings, binary as bytes. Fails when the connection is gone. */
  readonly pull: Socket.Reader["pull"]
  /** The connection below: whole frames may be written to it until the WebSocket closes. */
  readonly connection: Writable
}

const notUpgraded = () =>
  new UpgradeRequired({ detail: "the connection cannot be upgraded: send `Connection: Upgrade`" })

const keyForm = /^[+/0-9A-Za-z]{22}==$/
const protocolForm = /^[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*$/

/**
 * Checks what the WebSocket server would refuse without an error body.
 * @error UpgradeRequired no WebSocket client
 * @error InvalidRequest a WebSocket client with a broken handshake
 */
export const checkHandshake = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
  const { headers } = request
  if (request.method !== "GET" || headers.upgrade?.toLowerCase() !== "websocket") {
    return yield* new UpgradeRequired({ detail: "this path speaks WebSocket only" })
  }
  if (!/(?:^|,)\s*upgrade\s*(?:,|$)/i.test(headers.connection ?? "")) return yield* notUpgraded()
  if (headers["sec-websocket-version"] !== "13") {
    return yield* new UpgradeRequired({ detail: "Sec-WebSocket-Version: expected 13" })
  }
  if (!keyForm.test(headers["sec-websocket-key"] ?? "")) {
    return yield* new InvalidRequest({ detail: "Sec-WebSocket-Key: expected 16 bytes in base64" })
  }
  const protocols = headers["sec-websocket-protocol"]
  if (protocols !== undefined) {
    const names = protocols.split(",").map((name) => name.trim())
    if (!protocolForm.test(protocols) || new Set(names).size !== names.length) {
      return yield* new InvalidRequest({ detail: "Sec-WebSocket-Protocol: expected distinct tokens" })
    }
  }
})

/**
 * Upgrades a request that passed {@link checkHandshake}, until the scope closes.
 * @error SocketError the peer left meanwhile
 * @error UpgradeRequired the request cannot be upgraded
 */
export const upgrade = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest
): Effect.fn.Return<Upgraded, Socket.SocketError | UpgradeRequired, Scope.Scope> {
  const socket = yield* Effect.mapError(request.upgrade, notUpgraded)
  let webSocket: NodeWS.WebSocket | undefined
  const { pull } = yield* Effect.provideService(socket.reader, OnWebSocket, (made) => {
    webSocket = made
  })
  if (webSocket === undefined) {
    return yield* Effect.die(new Error("the HTTP server was made without webSocketOptions"))
  }
  const ws: NodeWS.WebSocket = webSocket
  let unread = 0
  ws.on("message", () => {
    unread += 1
    if (unread > MOST_FRAMES) ws.terminate()
  })
  const connection = NodeHttpServerRequest.toIncomingMessage(request).socket
  const counted = Effect.tap(pull, () =>
    Effect.sync(() => {
      unread = 0
    })
  )
  return { webSocket: ws, pull: counted, connection }
})
