import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Cause, type Duration, Effect, type Pull, type Scope, Stream } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { Subscription } from "./EventHub.ts"

export interface SseOptions {
  /** Whether each event has an `id:` line; the caller resumes. */
  readonly withIds: boolean
  /** Between two comments that keep the connection alive (15 s). */
  readonly heartbeat?: Duration.Input
  /** How long a peer that was cut off may take to read what is on its way (5 s). */
  readonly grace?: Duration.Input
  /** Ends the stream once it completes: the server stops. */
  readonly shutdown?: Effect.Effect<void>
}

const headers = {
  "cache-control": "no-cache",
  connection: "keep-alive",
  "x-accel-buffering": "no"
}

const encoder = new TextEncoder()
const connected = encoder.encode(": connected\n\n")
const ping = encoder.encode(": ping\n\n")

/**
 * Streams a subscription as Server-Sent Events (contract, 6.4; decisions, section 6). Headers and a first comment
 * leave at once; then all events that wait leave as one write. The stream ends between two events. The subscriber's
 * scope is that of the request, so a client that leaves unsubscribes at once.
 */
export const sseResponse = Effect.fn("sseResponse")(function* (
  subscription: Subscription,
  options: SseOptions
): Effect.fn.Return<
  HttpServerResponse.HttpServerResponse,
  never,
  HttpServerRequest.HttpServerRequest | Scope.Scope
> {
  const request = yield* HttpServerRequest.HttpServerRequest
  let pingIsDue = false

  yield* Effect.sleep(options.heartbeat ?? "15 seconds").pipe(
    Effect.andThen(
      Effect.sync(() => {
        pingIsDue = true
      })
    ),
    Effect.andThen(subscription.wake),
    Effect.forever,
    Effect.forkScoped
  )

  // A peer that reads nothing would hold the response, and what was written to it, for ever.
  yield* Effect.raceFirst(
    subscription.cutOff,
    Effect.andThen(options.shutdown ?? Effect.never, subscription.end)
  ).pipe(
    Effect.andThen(Effect.sleep(options.grace ?? "5 seconds")),
    Effect.andThen(Effect.sync(() => NodeHttpServerRequest.toServerResponse(request).destroy())),
    Effect.forkScoped
  )

  const events = Effect.map(subscription.pull, (batch): ReadonlyArray<Uint8Array> => {
    const parts = batch.map((event) => (options.withIds ? event.sseWithId : event.sse))
    if (!pingIsDue) return parts
    pingIsDue = false
    return [...parts, ping]
  })
  const chunks: Pull.Pull<readonly [Uint8Array]> = events.pipe(
    Effect.repeat({ until: (parts) => parts.length > 0 }),
    Effect.map((parts) => [Buffer.concat(parts)] as const),
    // Ends here; a client that resumes loses nothing.
    Effect.catchTag("Unavailable", (error) =>
      Effect.andThen(Effect.logWarning(`event replay stopped: ${error.detail}`), Cause.done())
    )
  )

  return HttpServerResponse.stream(
    Stream.concat(Stream.succeed<Uint8Array>(connected), Stream.fromPull(Effect.succeed(chunks))),
    { contentType: "text/event-stream", headers }
  )
})
