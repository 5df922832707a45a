import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { InvalidRequest } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { Topic } from "../domain/ServerEvent.ts"
import { type EventFilter, type EventInclude, includable } from "./EncodedEvent.ts"
import type { StartCursor } from "./EventHub.ts"

/** The query of an event stream; `cursor` is defined only when the caller resumes. */
export interface EventQuery {
  readonly filter: EventFilter
  readonly include?: EventInclude
  readonly cursor?: StartCursor
}

const parseCursor = (name: string, text: string, expected = "a whole number of at least 0") => {
  const cursor = /^\d+$/.test(text) ? Number(text) : Number.NaN
  return Number.isSafeInteger(cursor)
    ? Effect.succeed(cursor)
    : Effect.fail(new InvalidRequest({ detail: `${name}: expected ${expected}` }))
}

/** Reads names that are comma-separated, in one parameter or several; others than the allowed ones are refused. */
const parseNames = Effect.fnUntraced(function* <const A extends string>(
  field: string,
  values: ReadonlyArray<string>,
  allowed: ReadonlyArray<A>
) {
  const names = new Set<A>()
  for (const text of values.flatMap((value) => value.split(","))) {
    const given = text.trim()
    if (given === "") continue
    const name = allowed.find((known) => known === given)
    if (name === undefined) {
      return yield* new InvalidRequest({
        detail: `query field ${field}: expected ${allowed.join(", ")}, got ${JSON.stringify(given.slice(0, 100))}`
      })
    }
    names.add(name)
  }
  return names
})

/**
 * Reads the parameters of an event stream (decisions, section 6; life, "Streams"): `topics` and `include`
 * (comma-separated), `server_id`, `blueprint_id` (each repeatable) and `cursor`. Empty values count as absent.
 * `Last-Event-ID` takes precedence over `cursor`: a browser that reconnects sends it with the original address.
 *
 * @error InvalidRequest an unknown topic or field, or a cursor that is neither a whole number of at least 0 nor `now`
 */
export const parseEventQuery = Effect.fnUntraced(function* (
  query: URLSearchParams,
  lastEventId: string | undefined
): Effect.fn.Return<EventQuery, InvalidRequest> {
  const given = (name: string) => query.getAll(name).filter((value) => value !== "")
  const topics = yield* parseNames("topics", given("topics"), Topic.literals)
  const include = yield* parseNames("include", given("include"), includable)
  const serverIds = new Set(given("server_id").map((id) => ServerId.make(id)))
  const blueprintIds = new Set(given("blueprint_id"))
  const filter: EventFilter = {
    ...(topics.size > 0 && { topics }),
    ...(serverIds.size > 0 && { serverIds }),
    ...(blueprintIds.size > 0 && { blueprintIds })
  }
  const wanted = { filter, ...(include.size > 0 && { include }) }
  const [first, second] = given("cursor")
  if (lastEventId !== undefined && lastEventId !== "") {
    return { ...wanted, cursor: yield* parseCursor("Last-Event-ID", lastEventId) }
  }
  if (second !== undefined) return yield* new InvalidRequest({ detail: "cursor: given more than once" })
  if (first === undefined) return wanted
  if (first === "now") return { ...wanted, cursor: first }
  const expected = "a whole number of at least 0, or now"
  return { ...wanted, cursor: yield* parseCursor("cursor", first, expected) }
})

/** {@link parseEventQuery} of a request. */
export const eventQueryOf = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<EventQuery, InvalidRequest> => {
  const mark = request.url.indexOf("?")
  const query = new URLSearchParams(mark === -1 ? "" : request.url.slice(mark + 1))
  return parseEventQuery(query, request.headers["last-event-id"])
}
