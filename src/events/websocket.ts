import { Duration, Effect, type Scope, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { elapsedMillis } from "../domain/elapsed.ts"
import type { InvalidRequest, Unavailable, UpgradeRequired } from "../domain/errors.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"
import type { Subscription } from "./EventHub.ts"
import { framesOf } from "./frames.ts"
import { Outbox } from "./Outbox.ts"
import { checkHandshake, type Upgraded, upgrade } from "./webSocketUpgrade.ts"
import { sharedBytes, writeOutbox, writeReplay } from "./writeOutbox.ts"

export interface SocketOptions {
  /** Time between two pings (15 s). */
  readonly pingInterval?: Duration.Input
  /** Time without a pong after which the connection is ended; checked at every ping (30 s). */
  readonly pongTimeout?: Duration.Input
  /** Time in which the peer must acknowledge a close, before the connection is ended (5 s). */
  readonly grace?: Duration.Input
  /** Closes the socket with 1001 when it completes: the service stops. */
  readonly shutdown?: Effect.Effect<void>
  /** Closes the socket with 1008 when it completes: the key is no longer valid. */
  readonly revoked?: Effect.Effect<void>
  /** Closes the socket with 4001 when it completes: the ticket has opened the stream again. */
  readonly replaced?: Effect.Effect<void>
}

/** The two directions of a socket. */
export interface SocketTraffic<A> {
  /** The items before those of `live`. */
  readonly replay: Stream.Stream<A, Unavailable>
  /** The later items. Its end closes the socket with 1000; a cut-off closes it with 1013, also during a write. */
  readonly live: Outbox<A>
  /** The frames of a batch. */
  readonly bytesOf: (batch: ReadonlyArray<A>) => Uint8Array
  /** Called with each text message of the peer in order; without it messages are ignored, as binary ones are. */
  readonly onText?: (text: string) => Effect.Effect<void>
}

/** The reason for closing a socket; `terminate`: without a closing handshake, which the peer would not answer. */
type Ending = { readonly code: number; readonly reason: string } | "terminate" | "peer left"

const completed: Ending = { code: 1000, reason: "" }
const goingAway: Ending = { code: 1001, reason: "the service stops" }
const notValid: Ending = { code: 1008, reason: "the API key is no longer valid" }
const reopened: Ending = { code: 4001, reason: "the ticket has opened the stream again" }
const tooSlow: Ending = { code: 1013, reason: "too slow: messages were not read in time" }
const failed: Ending = { code: 1011, reason: "the database cannot be reached" }

const sendAll = <A>(
  { connection, webSocket }: Upgraded,
  { bytesOf, live, replay }: SocketTraffic<A>
): Effect.Effect<Ending> => {
  const peer = { connection, isOpen: () => webSocket.readyState === webSocket.OPEN, bytesOf }
  const sendLive = Effect.callback<Ending>((resume) => {
    const stop = writeOutbox(live, peer, (end) => {
      if (end === "cut off") resume(Effect.succeed(tooSlow))
      // The close follows once the operating system has all messages, so that the peer has time to read them.
      else connection.write("", () => resume(Effect.succeed(completed)))
    })
    return Effect.sync(stop)
  })
  return writeReplay(replay, peer, live).pipe(
    Effect.andThen(sendLive),
    Effect.catch((error) => Effect.as(Effect.logWarning(`event replay stopped: ${error.detail}`), failed))
  )
}

const receive = (
  upgraded: Upgraded,
  { onText }: Pick<SocketTraffic<unknown>, "onText">
): Effect.Effect<Ending> =>
  upgraded.pull.pipe(
    Effect.flatMap((frames) =>
      onText === undefined
        ? Effect.void
        : Effect.forEach(frames, (frame) => (typeof frame === "string" ? onText(frame) : Effect.void), {
            discard: true
          })
    ),
    Effect.forever,
    Effect.catchTag("SocketError", () => Effect.succeed<Ending>("peer left"))
  )

const keepAlive = Effect.fnUntraced(function* (
  { webSocket }: Upgraded,
  options: SocketOptions
): Effect.fn.Return<Ending> {
  const timeout = Duration.toMillis(options.pongTimeout ?? "30 seconds")
  /** Time of the oldest ping without a pong. */
  let unanswered: number | undefined
  webSocket.on("pong", () => {
    unanswered = undefined
  })
  while (true) {
    yield* Effect.sleep(options.pingInterval ?? "15 seconds")
    const now = yield* elapsedMillis
    if (unanswered !== undefined && now - unanswered >= timeout) return "terminate"
    unanswered ??= now
    if (webSocket.readyState === webSocket.OPEN) webSocket.ping()
  }
})

/** Closes with a handshake; ends the connection of a peer that does not answer. */
const close = ({ pull, webSocket }: Upgraded, ending: Ending, options: SocketOptions) => {
  if (ending === "peer left") return Effect.void
  if (ending === "terminate") return Effect.sync(() => webSocket.terminate())
  const closed = Effect.callback<void>((resume) => {
    if (webSocket.readyState === webSocket.CLOSED) return resume(Effect.void)
    const onClose = () => resume(Effect.void)
    webSocket.once("close", onClose)
    webSocket.close(ending.code, ending.reason)
    return Effect.sync(() => webSocket.off("close", onClose))
  })
  // The peer's answer follows the frames that it sent before.
  const drain = pull.pipe(
    Effect.forever,
    Effect.catch(() => Effect.never)
  )
  return Effect.raceFirst(closed, drain).pipe(
    Effect.timeoutOrElse({
      duration: options.grace ?? "5 seconds",
      orElse: () => Effect.sync(() => webSocket.terminate())
    })
  )
}

/**
 * Serves a WebSocket until one side ends it (spec 5): pings, 1013 for a peer that does not keep up, 1001
 * when the service stops, 1009 (by {@link webSocketOptions}) for frames over 64 KiB. Returns when the connection is
 * closed.
 *
 * @error UpgradeRequired not a WebSocket client
 * @error InvalidRequest  a broken handshake
 */
export const serveSocket = Effect.fn("serveSocket")(function* <A>(
  request: HttpServerRequest.HttpServerRequest,
  traffic: SocketTraffic<A>,
  options: SocketOptions = {}
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired | InvalidRequest> {
  yield* checkHandshake(request)
  yield* Effect.gen(function* () {
    const upgraded = yield* upgrade(request)
    const ending = yield* Effect.raceAllFirst([
      receive(upgraded, traffic),
      sendAll(upgraded, traffic),
      keepAlive(upgraded, options),
      Effect.as(traffic.live.cutOff, tooSlow),
      Effect.as(options.shutdown ?? Effect.never, goingAway),
      Effect.as(options.revoked ?? Effect.never, notValid),
      Effect.as(options.replaced ?? Effect.never, reopened)
    ])
    yield* close(upgraded, ending, options)
  }).pipe(
    Effect.scoped,
    Effect.catchTag("SocketError", () => Effect.logDebug("a WebSocket client left during the handshake"))
  )
  return HttpServerResponse.empty()
})

const withCursorsOf = sharedBytes<EncodedEvent>((batch) =>
  framesOf(batch.map(({ frameWithCursor }) => frameWithCursor))
)
const plainOf = sharedBytes<EncodedEvent>((batch) => framesOf(batch.map(({ frame }) => frame)))

/** Serves a subscription over WebSocket (spec 5.4); messages of the client are ignored. */
export const serveEventSocket = (
  request: HttpServerRequest.HttpServerRequest,
  subscription: Subscription,
  options: SocketOptions & {
    /** Whether each message has a `Cursor`; the caller resumes. */
    readonly withCursors: boolean
  }
) =>
  serveSocket(request, { ...subscription, bytesOf: options.withCursors ? withCursorsOf : plainOf }, options)

/** Overhead of a line in bytes, so that empty lines are bounded, too. */
const LINE_BYTES = 32

/**
 * Serves a console over WebSocket: each line is a text message, and each text message of the client is passed to
 * `onLine` (spec 3). A client with more than `bufferBytes` (1 MiB) of unsent lines is cut off.
 */
export const serveConsole = Effect.fn("serveConsole")(function* (
  request: HttpServerRequest.HttpServerRequest,
  lines: Stream.Stream<string>,
  onLine: (line: string) => Effect.Effect<void>,
  options: SocketOptions & { readonly bufferBytes?: number } = {}
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired | InvalidRequest, Scope.Scope> {
  yield* checkHandshake(request)
  const encoder = new TextEncoder()
  const outbox = new Outbox<Uint8Array>(options.bufferBytes ?? 1024 * 1024)
  yield* Stream.runForEachArray(lines, (batch) =>
    Effect.sync(() => {
      const messages = batch.map((line) => encoder.encode(line))
      outbox.offerAllUnsafe(
        messages,
        messages.reduce((bytes, message) => bytes + message.length + LINE_BYTES, 0)
      )
    })
  ).pipe(Effect.ensuring(Effect.sync(() => outbox.endUnsafe())), Effect.forkScoped)
  return yield* serveSocket(
    request,
    {
      replay: Stream.empty,
      live: outbox,
      bytesOf: (messages) => Buffer.concat(framesOf(messages)),
      onText: (text) => onLine(text.replace(/\r?\n$/, ""))
    },
    options
  )
})
