import { WebSocket } from "@effect/platform-node/NodeWS"
import { type Cause, Effect, Option, Queue, Schema, type Scope, Stream } from "effect"
import { type DaemonError, DaemonRefused, NodeUnreachable } from "../../api/Daemon.ts"
import { Conflict, NotFound } from "../../domain/errors.ts"

export interface ConsoleOptions {
  readonly node_id: string
  readonly url: string
  readonly token: string
  /** Certificates in PEM that are trusted. */
  readonly ca?: string
}

/** How long a handshake may take, in ms. */
const HANDSHAKE = 10_000
/** Between two pings; without a sign of life in between the connection counts as dead. */
const PING_MILLIS = 15_000
/** Bytes; longer than any line of a daemon. */
const LONGEST_LINE = 1024 * 1024
const LONGEST_REFUSAL = 64 * 1024

const decodeRefusal = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Union([NotFound, Conflict])))

const consoleUrl = (base: string, id: string) =>
  `${base.replace(/^http/, "ws").replace(/\/+$/, "")}/api/servers/${encodeURIComponent(id)}/console`

const refusalOf = (text: string, node_id: string): DaemonError =>
  Option.match(decodeRefusal(text), {
    onNone: () => new NodeUnreachable({ node_id }),
    onSome: ({ _tag, detail, hint }) =>
      new DaemonRefused({ status: _tag === "NotFound" ? 404 : 409, detail, hint })
  })

/**
 * The console of a server on another machine, over WebSocket, subscribed once this returns; the stream ends with the
 * server's removal, or with the connection. Without a deadline: it lasts as long as somebody looks.
 */
export const openConsole = Effect.fnUntraced(function* (
  { ca, node_id, token, url }: ConsoleOptions,
  id: string
): Effect.fn.Return<Stream.Stream<string>, DaemonError, Scope.Scope> {
  const lines = yield* Queue.unbounded<string, Cause.Done>()
  const socket = yield* Effect.acquireRelease(
    Effect.try({
      try: () =>
        new WebSocket(consoleUrl(url, id), {
          headers: { authorization: `Bearer ${token}` },
          handshakeTimeout: HANDSHAKE,
          maxPayload: LONGEST_LINE,
          perMessageDeflate: false,
          ...(ca === undefined ? {} : { ca })
        }),
      // An address that no WebSocket can have.
      catch: () => new NodeUnreachable({ node_id })
    }),
    (socket) =>
      Effect.sync(() => {
        // An error of a connection that nobody wants any more is none.
        socket.on("error", () => {})
        socket.terminate()
      })
  )
  let alive = true
  socket.on("message", (data, isBinary) => {
    if (!isBinary) Queue.offerUnsafe(lines, String(data))
  })
  socket.on("pong", () => {
    alive = true
  })
  socket.on("close", () => Queue.endUnsafe(lines))

  yield* Effect.callback<void, DaemonError>((resume) => {
    socket.once("open", () => resume(Effect.void))
    socket.on("error", () => resume(Effect.fail(new NodeUnreachable({ node_id }))))
    socket.once("unexpected-response", (_, response) => {
      let text = ""
      response.setEncoding("utf8")
      response.on("data", (chunk: string) => {
        if (text.length < LONGEST_REFUSAL) text += chunk
      })
      response.on("close", () => resume(Effect.fail(refusalOf(text, node_id))))
    })
  })
  yield* Effect.gen(function* () {
    yield* Effect.sleep(PING_MILLIS)
    if (!alive) return socket.terminate()
    alive = false
    socket.ping()
  }).pipe(Effect.forever, Effect.forkScoped)
  return Stream.fromQueue(lines)
})
