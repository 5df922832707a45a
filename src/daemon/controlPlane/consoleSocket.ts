import { Effect, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { Socket } from "effect/socket"
import { UpgradeRequired } from "../../domain/errors.ts"

/**
 * Serves a console over WebSocket until the lines end or the peer disconnects; each text message of the peer is a line.
 * A slow peer misses lines (see `Daemon.console`).
 */
export const serveConsole = Effect.fn("serveConsole")(function* (
  request: HttpServerRequest.HttpServerRequest,
  lines: Stream.Stream<string>,
  onLine: (line: string) => Effect.Effect<void>
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired> {
  const refuse = () => new UpgradeRequired({ detail: "this path speaks WebSocket only" })
  if (request.headers.upgrade?.toLowerCase() !== "websocket") return yield* refuse()
  const socket = yield* Effect.mapError(request.upgrade, refuse)
  yield* Effect.gen(function* () {
    const { pull } = yield* socket.reader
    const { write } = yield* socket.writer
    const send = Effect.andThen(Stream.runForEach(lines, write), write(new Socket.CloseEvent(1000)))
    const receive = Effect.forever(
      Effect.flatMap(pull, (frames) =>
        Effect.forEach(frames, (frame) => (typeof frame === "string" ? onLine(frame) : Effect.void), {
          discard: true
        })
      )
    )
    yield* Effect.raceFirst(send, receive)
  }).pipe(
    Effect.scoped,
    Effect.catchTag("SocketError", () => Effect.logDebug("a console's peer left"))
  )
  return HttpServerResponse.empty()
})
