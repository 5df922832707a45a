/** Raw clients of the stream server, and conditions to wait for. */

import { type IncomingMessage, request } from "node:http"
import { connect, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import WebSocket from "ws"
import { EventHub } from "../../../src/controlPlane/events/EventHub.ts"
import { eventually } from "../../support/eventually.ts"
import { TestServer } from "./streamServer.ts"

/** An SSE client that keeps the received text. */
export interface SseClient {
  readonly response: IncomingMessage
  /** Body so far. */
  readonly text: () => string
  /** Undefined while open; otherwise whether the body was complete. */
  readonly ended: () => "complete" | "aborted" | undefined
  readonly leave: Effect.Effect<void>
}

export const sse = (
  path: string,
  headers: Record<string, string> = {},
  options: { readonly method?: string } = {}
): Effect.Effect<SseClient, Error, TestServer | Scope.Scope> =>
  Effect.gen(function* () {
    const { port } = yield* TestServer
    const sent = request({ host: "127.0.0.1", port, path, headers, agent: false, ...options }).end()
    yield* Effect.addFinalizer(() => Effect.sync(() => sent.destroy()))
    sent.on("error", () => {})
    const response = yield* Effect.callback<IncomingMessage, Error>((resume) => {
      sent.once("response", (it) => resume(Effect.succeed(it)))
      sent.once("error", (error) => resume(Effect.fail(error)))
    })
    const chunks: Array<Buffer> = []
    let ended: "complete" | "aborted" | undefined
    response.on("data", (chunk: Buffer) => chunks.push(chunk))
    response.on("error", () => {})
    response.on("close", () => {
      ended = response.complete ? "complete" : "aborted"
    })
    return {
      response,
      text: () => Buffer.concat(chunks).toString(),
      ended: () => ended,
      leave: Effect.sync(() => sent.destroy())
    }
  })

/** A connection that sends `text` and then reads nothing. */
export const stalledConnection = (text: string): Effect.Effect<Socket, never, TestServer | Scope.Scope> =>
  Effect.gen(function* () {
    const { port } = yield* TestServer
    return yield* Effect.acquireRelease(
      Effect.callback<Socket>((resume) => {
        const socket = connect({ host: "127.0.0.1", port }, () => {
          socket.write(text)
          resume(Effect.succeed(socket))
        })
        socket.pause()
        socket.on("error", () => {})
      }),
      (socket) => Effect.sync(() => socket.destroy())
    )
  })

/** A WebSocket client that keeps its messages. */
export interface SocketClient {
  readonly socket: WebSocket
  readonly messages: ReadonlyArray<string>
  /** The close code; undefined while open. */
  readonly closed: () => number | undefined
}

export const ws = (
  path: string,
  options: WebSocket.ClientOptions = {}
): Effect.Effect<SocketClient, number, TestServer | Scope.Scope> =>
  Effect.gen(function* () {
    const { port } = yield* TestServer
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => new WebSocket(`ws://127.0.0.1:${port}${path}`, options)),
      (socket) => Effect.sync(() => socket.terminate())
    )
    const messages: Array<string> = []
    let closed: number | undefined
    socket.on("error", () => {})
    socket.on("message", (data, isBinary) => messages.push(isBinary ? "<binary>" : data.toString()))
    socket.on("close", (code) => {
      closed = code
    })
    yield* Effect.callback<void, number>((resume) => {
      socket.once("open", () => resume(Effect.void))
      socket.once("unexpected-response", (_, response) => {
        resume(Effect.fail(response.statusCode ?? 0))
        socket.terminate()
      })
    })
    return { socket, messages, closed: () => closed }
  })

/** A handshake to send with {@link deaf}. */
export const handshake = (path: string) =>
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

export const subscribersAre = (expected: number) =>
  eventually(Effect.flatMap(EventHub, (hub) => Effect.map(hub.subscribers, (count) => count === expected)))

/** Waits until the server holds that many connections. */
export const connectionsAre = (expected: number) =>
  eventually(
    Effect.flatMap(TestServer, (server) => Effect.map(server.connections, (count) => count === expected))
  )
