import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { InvalidRequest } from "../domain/errors.ts"
import { Topic } from "../domain/ServerEvent.ts"
import type { EventFilter } from "./EncodedEvent.ts"

/** The query of an event stream; `cursor` is defined only when the caller resumes. */
export interface EventQuery {
  readonly filter: EventFilter
  readonly cursor?: number
}

const isTopic = (text: string): text is Topic => Topic.literals.some((topic) => topic === text)

const parseCursor = (name: string, text: string) => {
  const cursor = /^\d+$/.test(text) ? Number(text) : Number.NaN
  return Number.isSafeInteger(cursor)
    ? Effect.succeed(cursor)
    : Effect.fail(new InvalidRequest({ detail: `${name}: expected a whole number of at least 0` }))
}

/**
 * Reads the parameters of an event stream (decisions, section 6): `topics` (comma-separated), `server_id`,
 * `blueprint_id` (each repeatable) and `cursor`. Empty values count as absent. `Last-Event-ID` takes precedence over
 * `cursor`: a browser that reconnects sends it with the original address.
 *
 * @error InvalidRequest an unknown topic, or a cursor that is not a whole number of at least 0
 */
export const parseEventQuery = Effect.fnUntraced(function* (
  query: URLSearchParams,
  lastEventId: string | undefined
) {
  const given = (name: string) => query.getAll(name).filter((value) => value !== "")
  const topics = new Set<Topic>()
  for (const name of given("topics").flatMap((value) => value.split(","))) {
    const topic = name.trim()
    if (topic === "") continue
    if (!isTopic(topic)) {
      return yield* new InvalidRequest({
        detail: `query field topics: expected ${Topic.literals.join(", ")}, got ${JSON.stringify(topic.slice(0, 100))}`
      })
    }
    topics.add(topic)
  }
  const serverIds = new Set(given("server_id"))
  const blueprintIds = new Set(given("blueprint_id"))
  const filter: EventFilter = {
    ...(topics.size > 0 && { topics }),
    ...(serverIds.size > 0 && { serverIds }),
    ...(blueprintIds.size > 0 && { blueprintIds })
  }
  const [first, second] = given("cursor")
  if (lastEventId !== undefined && lastEventId !== "") {
    return { filter, cursor: yield* parseCursor("Last-Event-ID", lastEventId) } satisfies EventQuery
  }
  if (second !== undefined) return yield* new InvalidRequest({ detail: "cursor: given more than once" })
  if (first === undefined) return { filter } satisfies EventQuery
  return { filter, cursor: yield* parseCursor("cursor", first) } satisfies EventQuery
})

/** {@link parseEventQuery} of a request. */
export const eventQueryOf = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<EventQuery, InvalidRequest> => {
  const mark = request.url.indexOf("?")
  const query = new URLSearchParams(mark === -1 ? "" : request.url.slice(mark + 1))
  return parseEventQuery(query, request.headers["last-event-id"])
}
