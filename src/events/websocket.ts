import { Cause, Duration, Effect, type Pull, type Scope, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { elapsedMillis } from "../domain/elapsed.ts"
import type { InvalidRequest, Unavailable, UpgradeRequired } from "../domain/errors.ts"
import type { Subscription } from "./EventHub.ts"
import { Outbox } from "./Outbox.ts"
import { checkHandshake, type Upgraded, upgrade } from "./webSocketUpgrade.ts"

export interface SocketOptions {
  /** Between two pings (15 s). */
  readonly ping_interval?: Duration.Input
  /** Without a pong for so long the connection is ended; looked at with every ping (30 s). */
  readonly pong_timeout?: Duration.Input
  /** How long the peer may take to answer a close before the connection is ended (5 s). */
  readonly grace?: Duration.Input
  /** Closes the socket with 1001 once it completes: the server stops. */
  readonly shutdown?: Effect.Effect<void>
  /** Closes the socket with 1008 once it completes: its key is not valid any more. */
  readonly revoked?: Effect.Effect<void>
}

/** What goes over a socket. */
export interface SocketTraffic {
  /** Text messages to send, in UTF-8, all that wait at a time; done: the socket closes with 1000. */
  readonly outgoing: Pull.Pull<ReadonlyArray<Uint8Array>, Unavailable>
  /** Waits until the peer is cut off because it does not keep up: the socket closes with 1013. */
  readonly cutOff: Effect.Effect<void>
  /** Whether the peer was cut off; asked when `outgoing` is done. */
  readonly overflow: Effect.Effect<boolean>
  /** Called with each text message of the peer, one after another; without it they are ignored, as binary ones are. */
  readonly onText?: (text: string) => Effect.Effect<void>
}

/** Why a socket is closed; `terminate`: without a closing handshake, which the peer would not answer. */
type Ending = { readonly code: number; readonly reason: string } | "terminate" | "peer left"

const completed: Ending = { code: 1000, reason: "" }
const goingAway: Ending = { code: 1001, reason: "the service stops" }
const notValid: Ending = { code: 1008, reason: "the API key is not valid any more" }
const tooSlow: Ending = { code: 1013, reason: "too slow: messages were not read in time" }
const failed: Ending = { code: 1011, reason: "the database cannot be reached" }

const sendAll = (upgraded: Upgraded, { outgoing, overflow }: SocketTraffic): Effect.Effect<Ending> =>
  Effect.flatMap(outgoing, upgraded.send).pipe(
    Effect.forever,
    Effect.catch((end) =>
      Cause.isDone(end)
        ? Effect.map(overflow, (cut) => (cut ? tooSlow : completed))
        : Effect.as(Effect.logWarning(`a socket's stream stopped: ${end.detail}`), failed)
    )
  )

const receive = (upgraded: Upgraded, { onText }: SocketTraffic): Effect.Effect<Ending> =>
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
  const timeout = Duration.toMillis(options.pong_timeout ?? "30 seconds")
  /** When the oldest ping was sent that has no pong yet. */
  let unanswered: number | undefined
  webSocket.on("pong", () => {
    unanswered = undefined
  })
  while (true) {
    yield* Effect.sleep(options.ping_interval ?? "15 seconds")
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
  // The peer's answer comes behind what it sent before.
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
 * Serves a WebSocket until one side ends it (decisions, section 6): pings, 1013 for a peer that does not keep up, 1001
 * when the service stops, 1009 (by {@link webSocketOptions}) for frames over 64 KiB. Returns when the connection is
 * gone.
 *
 * @error UpgradeRequired no WebSocket client
 * @error InvalidRequest  a broken handshake
 */
export const serveSocket = Effect.fn("serveSocket")(function* (
  request: HttpServerRequest.HttpServerRequest,
  traffic: SocketTraffic,
  options: SocketOptions = {}
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired | InvalidRequest> {
  yield* checkHandshake(request)
  yield* Effect.gen(function* () {
    const upgraded = yield* upgrade(request)
    const ending = yield* Effect.raceAllFirst([
      receive(upgraded, traffic),
      sendAll(upgraded, traffic),
      keepAlive(upgraded, options),
      Effect.as(traffic.cutOff, tooSlow),
      Effect.as(options.shutdown ?? Effect.never, goingAway),
      Effect.as(options.revoked ?? Effect.never, notValid)
    ])
    yield* close(upgraded, ending, options)
  }).pipe(
    Effect.scoped,
    Effect.catchTag("SocketError", () => Effect.logDebug("a WebSocket client left during the handshake"))
  )
  return HttpServerResponse.empty()
})

/** Serves a subscription over WebSocket (contract, 6.3); what the client sends is ignored. */
export const serveEventSocket = (
  request: HttpServerRequest.HttpServerRequest,
  subscription: Subscription,
  options: SocketOptions & {
    /** Whether each message has a `Cursor`; the caller resumes. */
    readonly withCursors: boolean
  }
) =>
  serveSocket(
    request,
    {
      outgoing: Effect.map(subscription.pull, (events) =>
        events.map((event) => (options.withCursors ? event.frameWithCursor : event.frame))
      ),
      cutOff: subscription.cutOff,
      overflow: subscription.overflow
    },
    options
  )

/** Bytes that a line takes beside its text: lines without any are bounded, too. */
const LINE_BYTES = 32

/**
 * Serves a console over WebSocket: each line is a text message, each text message of the client a line for `onLine`
 * (decisions, section 3). A client with more than `buffer_bytes` (1 MiB) of lines unsent is cut off.
 */
export const serveConsole = Effect.fn("serveConsole")(function* (
  request: HttpServerRequest.HttpServerRequest,
  lines: Stream.Stream<string>,
  onLine: (line: string) => Effect.Effect<void>,
  options: SocketOptions & { readonly buffer_bytes?: number } = {}
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired | InvalidRequest, Scope.Scope> {
  yield* checkHandshake(request)
  const encoder = new TextEncoder()
  const outbox = new Outbox<Uint8Array>(options.buffer_bytes ?? 1024 * 1024)
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
      outgoing: outbox.pull,
      cutOff: outbox.awaitCutOff,
      overflow: Effect.sync(() => outbox.overflowed),
      onText: (text) => onLine(text.replace(/\r?\n$/, ""))
    },
    options
  )
})
