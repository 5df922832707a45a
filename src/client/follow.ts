import { type Duration, Effect, Option, Schedule, Schema, Stream } from "effect"
import * as Sse from "effect/encoding/Sse"
import type { HttpClientError, HttpClientResponse } from "effect/http"
import { ServerId } from "../contract/domain/Id.ts"
import type { Server } from "../contract/domain/Server.ts"
import { ServerEvent, type Topic } from "../contract/domain/ServerEvent.ts"
import { makePause } from "../shared/work/backoff.ts"
import type { Calls, EndpointsOf, NamedGroup, RequestOf, ServerEndpoints } from "./calls.ts"
import { isTransient, retries, unexpected } from "./responses.ts"

type ListQuery = NonNullable<RequestOf<ServerEndpoints["list"]>["query"]>

/** The filters of a list of servers, and further fields of its servers; `status` is always there. */
export interface ListOptions extends Omit<ListQuery, "ids_only" | "include" | "limit" | "after"> {
  readonly include?: ReadonlyArray<string>
}

/** The servers at a cursor. A follower that begins at this cursor misses no change and repeats none. */
export interface Snapshot {
  readonly servers: ReadonlyArray<Server>
  readonly cursor: number
}

export const cursorIn = (text: string | undefined): number | undefined =>
  text !== undefined && /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))
    ? Number(text)
    : undefined

const cursorOf = (response: HttpClientResponse.HttpClientResponse) => {
  const text = response.headers["x-muster-cursor"]
  const cursor = cursorIn(text)
  return cursor === undefined
    ? Effect.fail(
        unexpected(
          response,
          text === undefined
            ? "the header X-Muster-Cursor is missing"
            : `the header X-Muster-Cursor is no cursor: ${text.slice(0, 50)}`
        )
      )
    : Effect.succeed(cursor)
}

/** Lists all servers that match, with the cursor of the list. */
export const list = (calls: Calls) =>
  Effect.fn("MusterClient.list")(function* ({ include = [], ...filters }: ListOptions = {}) {
    const [servers, response] = yield* calls.servers.list({
      query: { ...filters, include: [...new Set(["status", ...include])].join(",") },
      responseMode: "decoded-and-response"
    })
    return {
      servers: servers.filter((server) => typeof server !== "string"),
      cursor: yield* cursorOf(response)
    } satisfies Snapshot
  })

export const present = (calls: Calls) =>
  calls.servers
    .list({ query: { ids_only: true, limit: "1" }, responseMode: "decoded-and-response" })
    .pipe(Effect.flatMap(([, response]) => cursorOf(response)))

type EventEndpoints = EndpointsOf<Extract<NamedGroup, { readonly identifier: "events" }>>
type Query = NonNullable<RequestOf<EventEndpoints["sse"]>["query"]>

/** The beginning of a follower: a cursor, the present, or a list, which is then the first element. */
export type FollowFrom = number | "now" | "list"

export interface FollowOptions
  extends Omit<Query, "cursor" | "topics" | "include" | "server_id" | "blueprint_id" | "ticket"> {
  /** Default `list`. */
  readonly from?: FollowFrom
  /** Default: all topics that are not opt-in. */
  readonly topics?: ReadonlyArray<Topic>
  readonly servers?: ReadonlyArray<ServerId | string>
  readonly blueprints?: ReadonlyArray<string>
  /** `server`: each change has the summary of its server. */
  readonly include?: ReadonlyArray<"server">
  /** Filters and fields of the list that a `reset` has. */
  readonly list?: ListOptions
  /** The time without a byte after which a connection counts as dead; default 35 s: the service sends one every 15 s. */
  readonly silence?: Duration.Input
}

type ChangeOf<Event> = Event extends {
  readonly Topic: infer T
  readonly Data: { readonly payload: infer P }
}
  ? {
      readonly topic: T
      /** A follower from here on receives the later changes. A change outside the journal has that of the one before. */
      readonly cursor: number
      /** The time of the commit, RFC 3339 in UTC. */
      readonly at: string
      readonly server_id: ServerId
      readonly payload: P
      /** With `include: ["server"]`: the summary of the server, or null if it was deleted too long ago. */
      readonly server?: Server | null
    }
  : never

export type Change = ChangeOf<ServerEvent>

/** The whole state, with which a follower replaces its own: the service has lost the changes in between. */
export interface Reset {
  readonly topic: "reset"
  readonly cursor: number
  readonly servers: ReadonlyArray<Server>
}

type Broken = HttpClientError.HttpClientError | Schema.SchemaError | Sse.SseError

type Refused =
  | Effect.Error<ReturnType<ReturnType<typeof list>>>
  | Effect.Error<ReturnType<Calls["events"]["sse"]>>

const decodeEvent = Schema.decodeUnknownEffect(Schema.fromJsonString(ServerEvent))

const changeOf = ({ Data, Topic }: ServerEvent, cursor: number): Change => {
  const { payload, server, server_id, time } = Data
  // The topic and the payload are of one event.
  return {
    topic: Topic,
    cursor,
    at: time ?? "",
    server_id: ServerId.make(server_id),
    payload,
    ...(server === undefined ? {} : { server })
  } as Change
}

/** Follows changes over SSE without gaps or repetition; a {@link Reset} replaces lost ones. Lasting failures end it. */
export const follow =
  (calls: Calls) =>
  (options: FollowOptions = {}) => {
    const {
      blueprints = [],
      from = "list",
      include = [],
      list: listed,
      servers = [],
      silence = "35 seconds",
      topics = [],
      ...others
    } = options
    const isFollowed = ({ blueprint_id, id }: Server) =>
      (servers.length === 0 || servers.includes(id)) &&
      (blueprints.length === 0 || blueprints.includes(blueprint_id))

    return Stream.unwrap(
      Effect.gen(function* () {
        let cursor = from
        let pause = yield* makePause(retries)
        let isFirst = true
        const renewPause = Effect.map(makePause(retries), (renewed) => {
          pause = renewed
        })

        const reset = Effect.map(list(calls)(listed), (snapshot): Reset => {
          cursor = snapshot.cursor
          return { topic: "reset", cursor, servers: snapshot.servers.filter(isFollowed) }
        })

        /** Cursors of one connection never decrease: a follower would repeat changes, or miss some. */
        const advance = Effect.fnUntraced(function* (
          from: number,
          event: Sse.Event,
          response: HttpClientResponse.HttpClientResponse
        ) {
          if (event.id === undefined) return from
          const next = cursorIn(event.id)
          if (next === undefined || next < from) {
            return yield* unexpected(response, `cursor ${event.id.slice(0, 50)} after cursor ${from}`)
          }
          return next
        })

        /** The changes of one connection; ends when it breaks. */
        const changes = (after: number) =>
          calls.events
            .sse({
              query: {
                ...others,
                cursor: String(after),
                include: ["time", ...include].join(","),
                ...(topics.length > 0 && { topics: topics.join(",") }),
                ...(servers.length > 0 && { server_id: servers }),
                ...(blueprints.length > 0 && { blueprint_id: blueprints })
              },
              responseMode: "decoded-and-response"
            })
            .pipe(
              Effect.flatMap(([, response]) => {
                const type = response.headers["content-type"] ?? "none"
                if (!type.startsWith("text/event-stream")) {
                  return Effect.fail(
                    unexpected(response, `expected text/event-stream, got ${type.slice(0, 100)}`)
                  )
                }
                let chunks = 0
                let at = after
                const toChange = Effect.fnUntraced(function* (event: Sse.Event) {
                  const decoded = yield* decodeEvent(event.data)
                  at = yield* advance(at, event, response)
                  cursor = at
                  return changeOf(decoded, at)
                })
                const received = response.stream.pipe(
                  Stream.timeout(silence),
                  // Not the first chunk: a connection that breaks at once must not be opened without a pause.
                  Stream.tap(() => (++chunks === 2 ? renewPause : Effect.void)),
                  Stream.decodeText,
                  Stream.pipeThroughChannel(Sse.decode()),
                  // The decoder ends there; the follower has pauses of its own.
                  Stream.catchTag("Retry", () => Stream.empty),
                  Stream.mapEffect(toChange)
                )
                return Effect.succeed(received)
              })
            )

        const connection = Effect.gen(function* (): Effect.fn.Return<
          Stream.Stream<Change | Reset, Broken>,
          Refused
        > {
          if (cursor === "list") return Stream.succeed(yield* reset)
          if (cursor === "now") cursor = yield* present(calls)
          return yield* changes(cursor).pipe(
            Effect.catchTag("CursorExpired", () => Effect.map(reset, (it) => Stream.succeed(it)))
          )
        })
        const afterPause = Effect.suspend(() => {
          const due = isFirst ? Effect.void : pause
          isFirst = false
          return due
        })
        return Effect.andThen(afterPause, Effect.timeoutOption(connection, silence)).pipe(
          Effect.map(Option.getOrElse((): Stream.Stream<Change | Reset, Broken> => Stream.empty)),
          Stream.unwrap,
          Stream.catchIf(isTransient, (error) =>
            Stream.fromEffectDrain(Effect.logDebug(`the event stream broke: ${error}`))
          ),
          Stream.repeat(Schedule.forever)
        )
      })
    )
  }
