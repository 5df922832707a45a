import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { InvalidRequest, joinReasons } from "../../contract/domain/errors.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { Topic } from "../../contract/domain/ServerEvent.ts"
import { requestQuery } from "../http/requestUrl.ts"
import { type EventFilter, type EventInclude, includable } from "./EncodedEvent.ts"
import type { StartCursor } from "./EventHub.ts"

/** The query of an event stream. Only a caller that resumes has a `cursor`. */
export interface EventQuery {
  readonly filter: EventFilter
  readonly include?: EventInclude
  readonly cursor?: StartCursor
}

const NUMBER = "a whole number of at least 0"

/** Reads the cursor; a reason against it is added to `refused`. */
const cursorIn = (
  [first, second]: ReadonlyArray<string>,
  lastEventId: string | undefined,
  refused: Array<string>
): StartCursor | undefined => {
  const wholeNumber = (name: string, text: string, expected: string) => {
    const cursor = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (Number.isSafeInteger(cursor)) return cursor
    refused.push(`${name}: expected ${expected}`)
    return undefined
  }
  if (lastEventId !== undefined && lastEventId !== "")
    return wholeNumber("Last-Event-ID", lastEventId, NUMBER)
  if (second === undefined)
    return first === undefined || first === "now" ? first : wholeNumber("cursor", first, `${NUMBER}, or now`)
  refused.push("cursor: given more than once")
  return undefined
}

/** The longest interval of the topic `stats`, in seconds. */
const LONGEST_INTERVAL = 60

/** Reads comma-separated names from one parameter or several; reasons against unknown ones are added to `refused`. */
const namesIn = <const A extends string>(
  field: string,
  values: ReadonlyArray<string>,
  allowed: ReadonlyArray<A>,
  refused: Array<string>
): ReadonlySet<A> => {
  const names = new Set<A>()
  for (const text of values.flatMap((value) => value.split(",")).map((given) => given.trim())) {
    const name = allowed.find((known) => known === text)
    if (name !== undefined) names.add(name)
    else if (text !== "")
      refused.push(
        `query field ${field}: expected ${allowed.join(", ")}, got ${JSON.stringify(text.slice(0, 100))}`
      )
  }
  return names
}

/**
 * Reads the parameters of an event stream (spec 5.5); empty values count as absent. `Last-Event-ID` takes precedence
 * over `cursor`, because a browser that reconnects sends it with the original address.
 * @error InvalidRequest an unknown topic or field, `interval` without `stats`, or a bad cursor
 */
export const parseEventQuery = Effect.fnUntraced(function* (
  query: URLSearchParams,
  lastEventId: string | undefined
): Effect.fn.Return<EventQuery, InvalidRequest> {
  const given = (name: string) => query.getAll(name).filter((value) => value !== "")
  const refused: Array<string> = []
  const topics = namesIn("topics", given("topics"), Topic.literals, refused)
  const include = namesIn("include", given("include"), includable, refused)
  const cursor = cursorIn(given("cursor"), lastEventId, refused)
  if (refused.length > 0) return yield* new InvalidRequest({ detail: joinReasons(refused) })
  const serverIds = new Set(given("server_id").map((id) => ServerId.make(id)))
  const blueprintIds = new Set(given("blueprint_id"))
  const interval = yield* parseInterval(given("interval"), topics)
  const filter: EventFilter = {
    ...(topics.size > 0 && { topics }),
    ...(serverIds.size > 0 && { serverIds }),
    ...(blueprintIds.size > 0 && { blueprintIds }),
    ...(interval !== undefined && { interval })
  }
  return {
    filter,
    ...(include.size > 0 && { include }),
    ...(cursor === undefined ? {} : { cursor })
  }
})

const parseInterval = Effect.fnUntraced(function* (
  values: ReadonlyArray<string>,
  topics: ReadonlySet<Topic>
) {
  const [text, second] = values
  if (text === undefined) return undefined
  const interval = /^\d{1,2}$/.test(text) && second === undefined ? Number(text) : 0
  if (interval < 1 || interval > LONGEST_INTERVAL) {
    return yield* new InvalidRequest({
      detail: `query field interval: expected a whole number from 1 to ${LONGEST_INTERVAL}`
    })
  }
  if (!topics.has("stats")) {
    return yield* new InvalidRequest({
      detail: "query field interval: only the topic stats has an interval",
      hint: "Add the topic `stats` to `topics`, or leave `interval` out."
    })
  }
  return interval
})

export const eventQueryOf = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<EventQuery, InvalidRequest> => {
  const query = new URLSearchParams(requestQuery(request.url))
  return parseEventQuery(query, request.headers["last-event-id"])
}
