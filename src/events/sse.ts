import type { Writable } from "node:stream"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Array as Arr, Cause, type Duration, Effect, type Scope, Stream } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { Unavailable } from "../domain/errors.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"
import type { Subscription } from "./EventHub.ts"
import { Heartbeats } from "./Heartbeats.ts"
import { StreamShutdown } from "./StreamShutdown.ts"

export interface SseOptions {
  /** Whether each event has an `id:` line; the caller resumes. */
  readonly withIds: boolean
  /** Whether an `id:` line alone precedes the events, so that a client resumes there before it has an event. */
  readonly withStart?: boolean
  /** Time in which a peer reads the rest of a stream that ends (5 s). */
  readonly grace?: Duration.Input
  /** Each completes when the stream is to end, as its key does; a fiber waits for each that is not `Effect.never`. */
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
 * Waits until the peer has read enough, or the outbox ends. `flush` may write; it returns whether to wait further. It is
 * called on the stack of the publisher: a fiber that wakes for each chunk would take most of the time of a delivery.
 */
const flushed = (response: Writable, live: Subscription["live"], flush: () => boolean): Effect.Effect<void> =>
  Effect.callback((resume) => {
    const look = () => {
      if (!flush()) resume(Effect.void)
    }
    const remove = live.listenUnsafe(look)
    response.on("drain", look)
    look()
    return Effect.sync(() => {
      remove()
      response.off("drain", look)
    })
  })

/** Writes the events of a subscription until it ends; the last ones within the time of grace. */
const writeAll = (
  response: Writable,
  { live, replay }: Subscription,
  { grace = "5 seconds", withIds }: SseOptions
): Effect.Effect<void, Unavailable> => {
  const write = (batch: ReadonlyArray<EncodedEvent>) => response.write(bytesOf(batch, withIds))
  /** Returns whether the outbox is not at its end. */
  const flush = () => {
    while (!response.writableNeedDrain && !response.destroyed) {
      const taken = live.takeUnsafe()
      if (typeof taken === "string") return false
      if (taken === undefined) return true
      write(taken)
    }
    return true
  }
  const replayed = Stream.runForEachArray(replay, (batch) => {
    write(batch)
    return flushed(response, live, () => response.writableNeedDrain && live.isOpen)
  })
  const ending = flushed(response, live, () => flush() && live.isOpen)
  // A peer that reads nothing would hold the response and its unsent bytes forever.
  const rest = Effect.timeoutOrElse(flushed(response, live, flush), {
    duration: grace,
    orElse: () => Effect.sync(() => response.destroy())
  })
  return replayed.pipe(Effect.andThen(ending), Effect.andThen(rest))
}

/**
 * Streams a subscription as Server-Sent Events (contract, 6.4; decisions, section 6). Headers and a first comment
 * leave at once; then each chunk of events is one write. The stream ends between two events. The subscriber's scope is
 * that of the request, so that a client that disconnects unsubscribes at once.
 */
export const makeSseResponse = Effect.gen(function* () {
  const heartbeats = yield* Heartbeats
  const { onBegin } = yield* StreamShutdown
  return Effect.fn("sseResponse")(function* (
    subscription: Subscription,
    options: SseOptions
  ): Effect.fn.Return<
    HttpServerResponse.HttpServerResponse,
    never,
    HttpServerRequest.HttpServerRequest | Scope.Scope
  > {
    const { endings = [], withStart } = options
    const { live, start } = subscription
    const response: Writable = NodeHttpServerRequest.toServerResponse(
      yield* HttpServerRequest.HttpServerRequest
    )
    const end = () => live.endUnsafe()
    yield* Effect.acquireRelease(
      Effect.sync(() => onBegin(end)),
      (remove) => Effect.sync(remove)
    )
    for (const ending of endings) {
      if (ending !== Effect.never) yield* Effect.forkScoped(Effect.andThen(ending, Effect.sync(end)))
    }
    // Between two writes is between two events.
    yield* heartbeats.each(() => {
      if (response.writable && !response.writableNeedDrain) response.write(ping)
    })

    const head = withStart === true ? encoder.encode(`${opening}id: ${start}\n\n`) : connected
    // The stream ends if the journal cannot be read; a client that resumes misses no event.
    const written = Effect.catchTag(writeAll(response, subscription, options), "Unavailable", (error) =>
      Effect.logWarning(`event replay stopped: ${error.detail}`)
    )
    let hasHead = false
    const pull = Effect.suspend(() => {
      if (hasHead) return Effect.andThen(written, Cause.done())
      hasHead = true
      return Effect.succeed(Arr.of<Uint8Array>(head))
    })
    return HttpServerResponse.stream(Stream.fromPull(Effect.succeed(pull)), {
      contentType: "text/event-stream",
      headers
    })
  })
})
