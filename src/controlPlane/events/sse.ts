import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { sharedBytes } from "./Batch.ts"
import type { Subscription } from "./EventHub.ts"

export interface SseOptions {
  /** Whether each event has an `id:` line; the caller resumes. */
  readonly withIds: boolean
  /** Whether an `id:` line alone precedes the events, so that a client resumes there before it has an event. */
  readonly withStart?: boolean
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

const withIdsOf = sharedBytes((events) => events.map(({ sseWithId }) => sseWithId))
const plainOf = sharedBytes((events) => events.map(({ sse }) => sse))

/**
 * Streams a subscription as Server-Sent Events (spec 5.3). Headers and a first comment leave at once; then each batch of
 * events is one write. The stream ends between two events. The scope of the subscription is that of the request, so that a
 * client that disconnects unsubscribes at once.
 */
export const sseResponse = (
  { events, start }: Subscription,
  { endings = [], withIds, withStart = false }: SseOptions
): HttpServerResponse.HttpServerResponse => {
  const bytesOf = withIds ? withIdsOf : plainOf
  const sent = events.pipe(
    Stream.map((delivery) => (delivery === "beat" ? ping : bytesOf(delivery))),
    Stream.catch((error) =>
      // The stream ends here; a client that resumes misses no event.
      Stream.drain(
        Stream.fromEffect(
          error._tag === "SubscriberTooSlow"
            ? Effect.void
            : Effect.logWarning(`event replay stopped: ${error.detail}`)
        )
      )
    )
  )
  const ended = endings
    .filter((ending) => ending !== Effect.never)
    .reduce((stream, ending) => Stream.interruptWhen(stream, ending), sent)
  const first = encoder.encode(withStart ? `${opening}id: ${start}\n\n` : opening)
  return HttpServerResponse.stream(Stream.concat(Stream.succeed(first), ended), {
    contentType: "text/event-stream",
    headers
  })
}
