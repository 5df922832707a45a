import type { Writable } from "node:stream"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { type Duration, Effect, Exit, Fiber, Scope } from "effect"
import { HttpEffect, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { EncodedEvent } from "./EncodedEvent.ts"
import type { Subscription } from "./EventHub.ts"
import { Heartbeats } from "./Heartbeats.ts"
import { StreamShutdown } from "./StreamShutdown.ts"
import { sharedBytes, writeOutbox, writeReplay } from "./writeOutbox.ts"

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
const ping = encoder.encode(": ping\n\n")

const withIdsOf = sharedBytes<EncodedEvent>((batch) => batch.map(({ sseWithId }) => sseWithId))
const plainOf = sharedBytes<EncodedEvent>((batch) => batch.map(({ sse }) => sse))

/** The writing of a subscription to a response. */
interface Writing extends SseOptions {
  readonly response: Writable
  readonly subscription: Subscription
  /** Runs an effect in a fiber that ends with the request. */
  readonly run: (effect: Effect.Effect<void>) => void
}

/** Writes the events of a subscription until it ends. */
const writeEvents = ({ grace = "5 seconds", response, run, subscription, withIds }: Writing) => {
  const { live, replay } = subscription
  const peer = {
    connection: response,
    isOpen: () => !response.destroyed,
    bytesOf: withIds ? withIdsOf : plainOf
  }
  live.listenUnsafe(() => {
    if (live.isOpen || response.destroyed) return
    // A peer that reads nothing would hold the response and its unsent bytes forever.
    run(
      Effect.delay(
        Effect.sync(() => response.destroy()),
        grace
      )
    )
  })
  run(
    writeReplay(replay, peer, live).pipe(
      // The stream ends here; a client that resumes misses no event.
      Effect.catch((error) =>
        Effect.andThen(
          Effect.logWarning(`event replay stopped: ${error.detail}`),
          Effect.sync(() => live.endUnsafe())
        )
      ),
      Effect.andThen(
        Effect.sync(() => {
          writeOutbox(live, peer, () => response.end())
        })
      )
    )
  )
}

/**
 * Streams a subscription as Server-Sent Events (spec 5.3). Headers and a first comment
 * leave at once; then each chunk of events is one write. The stream ends between two events. The subscriber's scope is
 * that of the request, so that a client that disconnects unsubscribes at once.
 */
export const makeSseResponse = Effect.gen(function* () {
  const heartbeats = yield* Heartbeats
  const { onBegin } = yield* StreamShutdown
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  return Effect.fnUntraced(function* (
    subscription: Subscription,
    options: SseOptions
  ): Effect.fn.Return<
    HttpServerResponse.HttpServerResponse,
    never,
    HttpServerRequest.HttpServerRequest | Scope.Scope
  > {
    const { live, start } = subscription
    const request = yield* HttpServerRequest.HttpServerRequest
    const serverResponse = NodeHttpServerRequest.toServerResponse(request)
    const response: Writable = serverResponse
    // That of the request, which the platform closes otherwise.
    const scope = (yield* Effect.scope) as Scope.Closeable
    const run = (effect: Effect.Effect<void>) => Fiber.runIn(runFork(effect), scope)
    const end = () => live.endUnsafe()
    for (const ending of options.endings ?? []) {
      if (ending !== Effect.never) run(Effect.andThen(ending, Effect.sync(end)))
    }

    const begin = () => {
      // Sent alone, the head becomes one string. Sent with an event, its 40 parts would stay in memory, a kilobyte.
      if ("flushHeaders" in serverResponse) serverResponse.flushHeaders()
      response.write(options.withStart === true ? `${opening}id: ${start}\n\n` : opening)
      writeEvents({
        ...options,
        response,
        subscription,
        run
      })
      const notAtShutdown = onBegin(end)
      // Between two writes is between two events.
      const withoutHeartbeats = heartbeats.add(() => {
        // A response that has ended, and is not sent yet, is still `writable`: a write to it would end the service.
        if (!response.writableEnded && !response.writableNeedDrain) response.write(ping)
      })
      response.once("close", () => {
        notAtShutdown()
        withoutHeartbeats()
        runFork(Scope.close(scope, Exit.void))
      })
      HttpEffect.scopeDisableClose(scope)
    }
    if (request.method !== "HEAD") {
      // The platform ends the response after the head, and waits until it is closed. Its fiber would hold seven kilobytes
      // as long as the stream: the fiber ends now, and the scope of the request with the stream.
      const { end: endResponse } = response
      response.end = (onEnd: unknown) => {
        response.end = endResponse
        begin()
        if (typeof onEnd === "function") onEnd()
        return response
      }
    }
    return HttpServerResponse.raw(undefined, { contentType: "text/event-stream", headers })
  })
})
