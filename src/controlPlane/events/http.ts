import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { Unauthorized } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits, type RestrictedServer } from "../../contract/domain/KeyLimits.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, currentRestriction, KeyEnds } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { EventHub } from "./EventHub.ts"
import { type EventQuery, eventQueryOf } from "./filter.ts"
import { OpenStreams } from "./OpenStreams.ts"
import { ServerSummaries } from "./ServerSummaries.ts"
import { StatsFeed } from "./StatsFeed.ts"
import { StreamShutdown } from "./StreamShutdown.ts"
import { sseResponse } from "./sse.ts"
import { Tickets } from "./Tickets.ts"
import { serveEventSocket } from "./websocket.ts"

/** The same text for the same events with the same fields, in whatever order the request names them. */
const contentOf = ({ filter: { blueprintIds, interval, serverIds, topics }, include }: EventQuery) =>
  JSON.stringify([
    "events",
    ...(interval === undefined ? [] : [interval]),
    ...[topics, serverIds, blueprintIds, include].map((names) =>
      names === undefined ? null : [...names].toSorted()
    )
  ])

/** Reads the query of a request, opens the stream of its ticket, if it has one, and returns how to subscribe. */
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
    const query: EventQuery = {
      ...asked,
      filter: {
        ...asked.filter,
        ...(serverId === undefined ? {} : { serverIds: new Set([serverId]) }),
        ...(restriction === undefined ? {} : { mayRead })
      }
    }
    const cursor = typeof query.cursor === "number" ? query.cursor : undefined
    // A request that is refused must not end the stream that is open with its ticket.
    const hasTicket = (yield* CurrentPrincipal)?.ticket !== undefined
    if (cursor !== undefined && hasTicket) yield* hub.checkCursor(cursor)
    // A subscription without a number begins no earlier than at the position.
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

/**
 * Subscribes with the query of a request and responds over SSE; `serverId` restricts the stream to one server
 * (spec 5.3).
 */
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
