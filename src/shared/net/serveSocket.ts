import { Effect, type Scope } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import type { Socket } from "effect/socket"
import { UpgradeRequired } from "../../contract/domain/errors.ts"

type Write = Effect.Success<Socket.Socket["writer"]>["write"]

/** What is done with each message of a WebSocket, and what ends it. */
interface Served<R> {
  readonly onMessage: (message: string | Uint8Array) => Effect.Effect<void>
  readonly until: Effect.Effect<void, Socket.SocketError, R>
}

/** Serves a WebSocket until its end or the end of the peer. @param what names it in the log */
export const serveSocket = Effect.fnUntraced(function* <R>(
  request: HttpServerRequest.HttpServerRequest,
  what: string,
  serve: (write: Write) => Effect.Effect<Served<R>, never, Scope.Scope>
) {
  const refuse = () => new UpgradeRequired({ detail: "this path speaks WebSocket only" })
  if (request.headers.upgrade?.toLowerCase() !== "websocket") return yield* refuse()
  const socket = yield* Effect.mapError(request.upgrade, refuse)
  yield* Effect.gen(function* () {
    const { pull } = yield* socket.reader
    const { write } = yield* socket.writer
    const { onMessage, until } = yield* serve(write)
    const receive = Effect.forever(
      Effect.flatMap(pull, (messages) => Effect.forEach(messages, onMessage, { discard: true }))
    )
    yield* Effect.raceFirst(until, receive)
  }).pipe(
    Effect.scoped,
    Effect.catchTag("SocketError", () => Effect.logDebug(`the client of ${what} disconnected`))
  )
  return HttpServerResponse.empty()
})
