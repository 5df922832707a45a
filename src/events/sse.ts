import type { Writable } from "node:stream"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Array as Arr, type Duration, Effect, type Scope, Stream } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { EncodedEvent } from "./EncodedEvent.ts"
import type { Subscription } from "./EventHub.ts"

export interface SseOptions {
  /** Whether each event has an `id:` line; the caller resumes. */
  readonly withIds: boolean
  /** Whether an `id:` line alone precedes the events, so that a client resumes there before it has an event. */
  readonly withStart?: boolean
  /** Time between two comments that keep the connection alive (15 s). */
  readonly heartbeat?: Duration.Input
  /** Time in which a peer reads the rest of a stream that ends (5 s). */
  readonly grace?: Duration.Input
  /** Each completes when the stream is to end: the service stops, or the key ends. */
  readonly endings?: ReadonlyArray<Effect.Effect<void>>
}

const headers = {
  "cache-control": "no-cache",
  connection: "keep-alive",
  "x-accel-buffering": "no"
}

const encoder = new TextEncoder()
const opening = ": connected\n\n"
const connected = encoder.encode(opening)
const ping = encoder.encode(": ping\n\n")

const joined = { plain: new WeakMap<object, Uint8Array>(), withIds: new WeakMap<object, Uint8Array>() }

/** Returns the bytes of a batch, which are made once for all subscribers that share the batch. */
const bytesOf = (batch: ReadonlyArray<EncodedEvent>, withIds: boolean): Uint8Array => {
  const made = withIds ? joined.withIds : joined.plain
  const known = made.get(batch)
  if (known !== undefined) return known
  const bytes = Buffer.concat(batch.map((event) => (withIds ? event.sseWithId : event.sse)))
  made.set(batch, bytes)
  return bytes
}

/**
 * Streams a subscription as Server-Sent Events (contract, 6.4; decisions, section 6). Headers and a first comment
 * leave at once; then each chunk of events is one write. The stream ends between two events. The subscriber's scope is
 * that of the request, so that a client that disconnects unsubscribes at once.
 */
export const sseResponse = Effect.fn("sseResponse")(function* (
  { cutOff, end, events, start }: Subscription,
  options: SseOptions
): Effect.fn.Return<
  HttpServerResponse.HttpServerResponse,
  never,
  HttpServerRequest.HttpServerRequest | Scope.Scope
> {
  const response: Writable = NodeHttpServerRequest.toServerResponse(
    yield* HttpServerRequest.HttpServerRequest
  )

  // Written beside the stream, as a WebSocket's pings are: between two writes is between two events.
  yield* Effect.sync(() => {
    if (!response.writableEnded && !response.writableNeedDrain) response.write(ping)
  }).pipe(Effect.delay(options.heartbeat ?? "15 seconds"), Effect.forever, Effect.forkScoped)

  // A peer that reads nothing would hold the response and its unsent bytes forever.
  const close = Effect.sync(() => response.destroy()).pipe(Effect.delay(options.grace ?? "5 seconds"))
  // Each waits in a fiber of its own, which takes memory for as long as the stream is open.
  const endings = (options.endings ?? []).filter((ending) => ending !== Effect.never)
  for (const ending of [cutOff, ...endings.map((ending) => Effect.andThen(ending, end))]) {
    yield* Effect.forkScoped(Effect.andThen(ending, close))
  }

  const chunks = events.pipe(
    Stream.mapArray((batch) => Arr.of(bytesOf(batch, options.withIds))),
    // The stream ends here; a client that resumes misses no event.
    Stream.catchTags({
      SubscriberTooSlow: () => Stream.empty,
      Unavailable: (error) =>
        Stream.fromEffectDrain(Effect.logWarning(`event replay stopped: ${error.detail}`))
    })
  )
  const head = options.withStart === true ? encoder.encode(`${opening}id: ${start}\n\n`) : connected
  return HttpServerResponse.stream(Stream.concat(Stream.succeed<Uint8Array>(head), chunks), {
    contentType: "text/event-stream",
    headers
  })
})
