import type { Writable } from "node:stream"
import { Array as Arr, type Cause, Duration, Effect, Queue, type Scope, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import type { InvalidRequest, Unavailable, UpgradeRequired } from "../../contract/domain/errors.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import type { Subscription } from "./EventHub.ts"
import { sharedBytes } from "./Publisher.ts"
import { SubscriberTooSlow } from "./subscription.ts"
import { checkHandshake, type Upgraded, upgrade } from "./webSocketUpgrade.ts"

const TEXT = 0x81
const SHORT = 125
const MEDIUM = 0xffff

/** Returns the parts of an unmasked, uncompressed text frame of UTF-8 (RFC 6455, section 5.2). */
const frameOf = (message: Uint8Array): ReadonlyArray<Uint8Array> => {
  const { length } = message
  if (length <= SHORT) return [Uint8Array.of(TEXT, length), message]
  if (length <= MEDIUM) return [Uint8Array.of(TEXT, 126, length >> 8, length & 0xff), message]
  const head = Buffer.alloc(10)
  head.writeUInt16BE((TEXT << 8) | 127)
  head.writeBigUInt64BE(BigInt(length), 2)
  return [head, message]
}

export const framesOf = (messages: ReadonlyArray<Uint8Array>): ReadonlyArray<Uint8Array> =>
  messages.flatMap(frameOf)

export interface SocketOptions {
  /** Time between two pings (15 s). */
  readonly pingInterval?: Duration.Input
  /** Time without a pong after which the connection is ended; checked at every ping (30 s). */
  readonly pongTimeout?: Duration.Input
  /** Time in which the peer must acknowledge a close, before the connection is ended (5 s). */
  readonly grace?: Duration.Input
  /** Closes the socket with 1001 when it completes, as the service stops. */
  readonly shutdown?: Effect.Effect<void>
  /** Closes the socket with 1008 when it completes, as the key is no longer valid. */
  readonly revoked?: Effect.Effect<void>
  /** Closes the socket with 4001 when it completes, as the ticket has opened the stream again. */
  readonly replaced?: Effect.Effect<void>
}

export interface SocketTraffic {
  /** Whole frames of messages. Their end closes the socket with 1000. */
  readonly frames: Stream.Stream<Uint8Array, SubscriberTooSlow | Unavailable>
  /** Called with each text message of the peer in order. Other messages are ignored. */
  readonly onText?: (text: string) => Effect.Effect<void>
}

/** The reason for closing a socket. `terminate` skips a closing handshake that the peer would not answer. */
type Ending = { readonly code: number; readonly reason: string } | "terminate" | "peer left"

const completed: Ending = { code: 1000, reason: "" }
const goingAway: Ending = { code: 1001, reason: "the service stops" }
const notValid: Ending = { code: 1008, reason: "the API key is no longer valid" }
const reopened: Ending = { code: 4001, reason: "the ticket has opened the stream again" }
const tooSlow: Ending = { code: 1013, reason: "too slow: messages were not read in time" }
const failed: Ending = { code: 1011, reason: "the database cannot be reached" }

const written = (connection: Writable) =>
  Effect.callback<void>((resume) => {
    connection.write("", () => resume(Effect.void))
  })

/**
 * Writes as fast as the peer reads. The platform's writer does not wait and frames each message per subscriber:
 * 400,000 messages take ten times as long.
 */
const sendAll = ({ connection, webSocket }: Upgraded, { frames }: SocketTraffic): Effect.Effect<Ending> => {
  const drained = Effect.callback<void>((resume) => {
    const onDrain = () => resume(Effect.void)
    connection.once("drain", onDrain)
    return Effect.sync(() => connection.off("drain", onDrain))
  })
  const write = (bytes: Uint8Array) =>
    Effect.suspend(() => {
      // Nothing may follow the closing frame. The end of the connection interrupts this.
      if (webSocket.readyState !== webSocket.OPEN) return Effect.never
      return connection.write(bytes) ? Effect.void : drained
    })
  return frames.pipe(
    Stream.runForEach(write),
    // The close follows once the operating system has all messages, so that the peer has time to read them.
    Effect.andThen(written(connection)),
    Effect.as(completed),
    Effect.catchTags({
      SubscriberTooSlow: () => Effect.succeed(tooSlow),
      Unavailable: (error) => Effect.as(Effect.logWarning(`event replay stopped: ${error.detail}`), failed)
    })
  )
}

const receive = (upgraded: Upgraded, { onText }: Pick<SocketTraffic, "onText">): Effect.Effect<Ending> =>
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
 * Serves a WebSocket until it is closed (spec 5): pings, 1013 for a slow peer, 1001 when the service stops, 1009 (by
 * {@link webSocketOptions}) for frames over 64 KiB.
 *
 * @error UpgradeRequired not a WebSocket client
 * @error InvalidRequest a broken handshake
 */
const serveSocket = Effect.fn("serveSocket")(function* (
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

const encoder = new TextEncoder()
const framesOfTexts = (texts: ReadonlyArray<string>) => framesOf(texts.map((text) => encoder.encode(text)))
const withCursorsOf = sharedBytes((events) => framesOfTexts(events.map((event) => event.textWithCursor)))
const plainOf = sharedBytes((events) => framesOfTexts(events.map((event) => event.text)))

/** Serves a subscription over WebSocket (spec 5.4); messages of the client are ignored. */
export const serveEventSocket = (
  request: HttpServerRequest.HttpServerRequest,
  { events }: Subscription,
  options: SocketOptions & {
    readonly withCursors: boolean
  }
) => {
  const bytesOf = options.withCursors ? withCursorsOf : plainOf
  const frames = Stream.filter(events, (delivery) => delivery !== "beat").pipe(
    Stream.map(bytesOf),
    // The events end when the service stops, which closes the socket itself.
    Stream.concat(Stream.never)
  )
  return serveSocket(request, { frames }, options)
}

/** Overhead of a line in bytes, so that empty lines are bounded, too. */
const LINE_BYTES = 32

/** Returns the frames of lines. Fails if the unread lines exceed the bound. */
const boundedLines = Effect.fnUntraced(function* (lines: Stream.Stream<string>, bound: number) {
  const unread = yield* Queue.unbounded<string, SubscriberTooSlow | Cause.Done>()
  const sizeOf = (line: string) => Buffer.byteLength(line) + LINE_BYTES
  let bytes = 0
  const keep = (line: string) => {
    bytes += sizeOf(line)
    return bytes > bound ? new SubscriberTooSlow() : Queue.offer(unread, line)
  }
  yield* Stream.runForEach(lines, keep).pipe(
    Effect.matchEffect({
      onFailure: (error) => Queue.fail(unread, error),
      onSuccess: () => Queue.end(unread)
    }),
    Effect.forkScoped
  )
  return Stream.mapArray(Stream.fromQueue(unread), (batch) => {
    for (const line of batch) bytes -= sizeOf(line)
    return Arr.of(Buffer.concat(framesOfTexts(batch)))
  })
})

/** Serves a console over WebSocket (spec 3), and cuts off a client with over 1 MiB of unsent lines. */
export const serveConsole = Effect.fn("serveConsole")(function* (
  request: HttpServerRequest.HttpServerRequest,
  lines: Stream.Stream<string>,
  onLine: (line: string) => Effect.Effect<void>,
  options: SocketOptions & { readonly bufferBytes?: number } = {}
): Effect.fn.Return<HttpServerResponse.HttpServerResponse, UpgradeRequired | InvalidRequest, Scope.Scope> {
  yield* checkHandshake(request)
  const frames = yield* boundedLines(lines, options.bufferBytes ?? 1024 * 1024)
  return yield* serveSocket(
    request,
    { frames, onText: (text) => onLine(text.replace(/\r?\n$/, "")) },
    options
  )
})
