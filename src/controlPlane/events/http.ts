import { Effect, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { Unauthorized } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits, type RestrictedServer } from "../../contract/domain/Key.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, currentRestriction, KeyEnds, operationsOf } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { EventHub, type Subscription } from "./EventHub.ts"
import { type EventQuery, eventQueryOf } from "./eventQuery.ts"
import { ServerSummaries, StatsFeed } from "./LiveFeed.ts"
import { OpenStreams, StreamShutdown } from "./OpenStreams.ts"
import { sharedBytes } from "./Publisher.ts"
import { Tickets } from "./Tickets.ts"
import { serveEventSocket } from "./websocket.ts"

export interface SseOptions {
  /** Whether each event has an `id:` line; the caller resumes. */
  readonly withIds: boolean
  /** Whether an `id:` line alone comes first, so that a client without events can resume there. */
  readonly withStart?: boolean
  /** Each completes when the stream must end. A fiber waits for each that is not `Effect.never`. */
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

/** Streams a subscription as Server-Sent Events (spec 5.3): headers and a comment at once, then one write a batch. */
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

/** Returns the same text for the same events and fields, in whatever order the request names them. */
const contentOf = ({ filter: { blueprintIds, interval, serverIds, topics }, include }: EventQuery) =>
  JSON.stringify([
    "events",
    ...(interval === undefined ? [] : [interval]),
    ...[topics, serverIds, blueprintIds, include].map((names) =>
      names === undefined ? null : [...names].toSorted()
    )
  ])

/** Reads the query of a request, opens the stream of its ticket, and returns how to subscribe. */
const makeOpenStream = Effect.gen(function* () {
  const hub = yield* EventHub
  const tickets = yield* Tickets
  const streams = yield* OpenStreams
  const stats = yield* StatsFeed
  const summaries = yield* ServerSummaries
  return Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest, serverId?: ServerId) {
    yield* streams.take
    const asked = yield* eventQueryOf(request)
    const restriction = yield* currentRestriction
    const mayRead = (server: RestrictedServer) =>
      admits(restriction, server) && admits(restriction, summaries.facts(server.id) ?? server)
    const caller = yield* CurrentPrincipal
    const maySee = asked.filter.topics?.has("operation") === true ? operationsOf(caller) : undefined
    const query: EventQuery = {
      ...asked,
      filter: {
        ...asked.filter,
        ...(maySee === undefined ? {} : { maySee }),
        ...(asked.filter.topics?.has("backup") === true && caller?.rights !== undefined
          ? { rights: caller.rights }
          : {}),
        ...(serverId === undefined ? {} : { serverIds: new Set([serverId]) }),
        ...(restriction === undefined ? {} : { mayRead })
      }
    }
    const cursor = typeof query.cursor === "number" ? query.cursor : undefined
    // A request that is refused must not end the stream that is open with its ticket.
    const hasTicket = caller?.ticket !== undefined
    if (cursor !== undefined && hasTicket) yield* hub.checkCursor(cursor)
    const start = cursor ?? (yield* hub.position)
    const replaced = yield* tickets.open({ content: contentOf(query), start, cursor })
    const subscribe = Effect.gen(function* () {
      const subscription = yield* hub.subscribe(query)
      if (query.filter.topics?.has("stats")) yield* stats.listen(query.filter)
      return subscription
    })
    return { query, replaced, subscribe }
  })
})

/** Subscribes with the query of a request and responds over SSE, for one server with `serverId` (spec 5.3). */
export const makeServeEvents = Effect.gen(function* () {
  const keyEnds = yield* KeyEnds
  const openStream = yield* makeOpenStream
  return Effect.fnUntraced(
    function* (request: HttpServerRequest.HttpServerRequest, serverId?: ServerId) {
      const { query, replaced, subscribe } = yield* openStream(request, serverId)
      return sseResponse(yield* subscribe, {
        withIds: query.cursor !== undefined,
        withStart: query.cursor === "now",
        endings: [keyEnds(yield* CurrentPrincipal), replaced]
      })
    },
    Effect.catchTag("LimitReached", limitResponse)
  )
})

/** Handlers of the global event streams (spec 5). */
export const EventsHandlers = handlersOf(
  ApplicationApi,
  "events",
  Effect.fn(function* (handlers) {
    const tickets = yield* Tickets
    const { begun } = yield* StreamShutdown
    const { end } = yield* EventHub
    yield* Effect.forkScoped(Effect.andThen(begun, end))
    const keyEnds = yield* KeyEnds
    const openStream = yield* makeOpenStream
    const serveEvents = yield* makeServeEvents
    return handlers.handleAll({
      sse: ({ request }) => serveEvents(request),
      websocket: Effect.fnUntraced(
        function* ({ request }) {
          const { query, replaced, subscribe } = yield* openStream(request)
          return yield* serveEventSocket(request, yield* subscribe, {
            withCursors: query.cursor !== undefined,
            shutdown: begun,
            revoked: keyEnds(yield* CurrentPrincipal),
            replaced
          })
        },
        Effect.catchTag("LimitReached", limitResponse),
        Effect.scoped
      ),
      ticket: Effect.fnUntraced(
        function* () {
          const principal = yield* CurrentPrincipal
          if (principal === undefined) return yield* new Unauthorized({ detail: "no API key was given" })
          return yield* tickets.issue(principal)
        },
        Effect.catchTag("LimitReached", limitResponse)
      )
    })
  })
)
