import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { CursorExpired, UpgradeRequired } from "../domain/errors.ts"
import { TimeText } from "../domain/nowText.ts"
import { describedAs } from "../domain/optionalInput.ts"
import { ServerEvent, Topic } from "../domain/ServerEvent.ts"
import { get, post } from "./endpoint.ts"
import { Authorization } from "./middleware.ts"
import { many, text } from "./query.ts"

/** Query of the event streams (spec 5); `topics` comma-separated, `server_id` repeatable. */
export const EventQuery = {
  cursor: many(
    "Replays the events after this cursor first; 0: all retained events; `now`: none. Events then have an `id`, messages a `Cursor`. `Last-Event-ID` takes precedence.",
    { type: "string", pattern: "^(?:\\d{1,15}|now)$" }
  ),
  topics: many(
    "Only these topics, comma-separated. Default: `status`, `crash`, `deleted`; further: `install` (phase, step and progress of installations), `stats` (live figures), `expiring` (60 s before a server expires), `problem` (why a start was refused; null: no longer), `operation` (state and progress of operations).",
    { type: "array", items: { type: "string", enum: Topic.literals } }
  ),
  interval: many("Seconds between two `stats` events of a server, 1 to 60; default 10. Only with `stats`.", {
    type: "integer",
    minimum: 1,
    maximum: 60
  }),
  server_id: many("Only events of this server; may be given more than once."),
  blueprint_id: many("Only events of servers of this blueprint; may be given more than once."),
  include: many(
    "Further fields of `Data`, comma-separated: `server` (its summary; null: it was deleted too long ago) and `time` (of the commit, RFC 3339 in UTC).",
    { type: "array", items: { type: "string", enum: ["server", "time"] } }
  ),
  ticket: text(
    "A ticket in place of the `Authorization` header. Opens one stream within 30 s, and the same stream again, with a cursor at or after its start, until 60 s after it broke. An earlier connection of the stream then ends."
  )
}

/** Headers of the event streams (spec 5.5); the handler checks them with the query. */
export const EventHeaders = {
  "last-event-id": Schema.optionalKey(
    Schema.String.annotate({
      description:
        "The `id` of the last event that was received: the stream resumes after it. Takes precedence over `cursor`.",
      ...describedAs({ type: "string", pattern: "^\\d{1,15}$" })
    })
  )
}

/** A ticket opens one stream until `expires_at` (RFC 3339 UTC), then the same stream again (spec 5.7). */
export const Ticket = Schema.Struct({ ticket: Schema.String, expires_at: TimeText }).annotate({
  identifier: "Ticket"
})

/** The global event streams (spec 5). */
export class EventsGroup extends HttpApiGroup.make("events")
  .add(
    get("sse", "/events", "Events of all servers, over SSE", {
      right: "read",
      isStream: true,
      query: EventQuery,
      headers: EventHeaders,
      success: HttpApiSchema.StreamSse({ data: ServerEvent }),
      errors: [CursorExpired]
    }),
    get("websocket", "/events/ws", "Events of all servers, over WebSocket", {
      right: "read",
      isStream: true,
      query: EventQuery,
      headers: EventHeaders,
      success: HttpApiSchema.Empty(101),
      errors: [CursorExpired, UpgradeRequired]
    }),
    post("ticket", "/events/tickets", "A ticket for browsers, which cannot set headers", {
      right: "read",
      audited: "ticket.create",
      success: Ticket.pipe(HttpApiSchema.status(201))
    })
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Events" })) {}
