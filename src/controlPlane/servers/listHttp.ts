import { Effect, Iterable } from "effect"
import { HttpServerResponse } from "effect/http"
import type { ServersRequest } from "../../contract/api/ServersGroup.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import { inSlices } from "../../shared/work/slices.ts"
import { etagOf, respondWith, respondWithStream, unlessKnown } from "../http/conditional.ts"
import { type JsonBody, JsonWriter, LargeAnswers } from "../http/LargeAnswers.ts"
import { currentRestriction } from "../http/Principal.ts"
import { linkOf } from "../http/requestUrl.ts"
import { KeptServers } from "./kept/KeptServers.ts"
import { type ListRequest, parseInclude, parseListQuery } from "./list/listQuery.ts"
import { LONGEST_WHOLE } from "./list/ServerIndex.ts"
import { has } from "./list/summary.ts"
import { ServerManager } from "./ServerManager.ts"

/** Expected bytes of a summary, and the bound that counts of a list: a key makes two long lists at a time. */
const SUMMARY_BYTES = 512
const LIST_BYTES = 8 * 1024 * 1024
/** Bytes of a short list, which does not wait for room: that would cost as much as the list. */
const SHORT_BYTES = 128 * 1024
/** Bytes of the lists in memory for callers that ask again while no server changes: a list of 1,000 takes a tenth. */
const RECENT_BYTES = 4 * 1024 * 1024

const textOf = (value: unknown) =>
  value === undefined ? "" : JSON.stringify(value, (_, part) => (part instanceof Set ? [...part] : part))

/** Returns the tag of a list: the state of the servers and what else decides on the list. */
const tagOf = (state: string, url: string, ...of: ReadonlyArray<unknown>) =>
  etagOf([state, url, ...of.map(textOf)].join("\n"))

/** Responds with a JSON object, which is encoded in steps. */
export const respondWithFields = (
  fields: Iterable<readonly [string, unknown]>,
  headers: Readonly<Record<string, string>> = {}
) => {
  const encoded = inSlices(function* () {
    const writer = new JsonWriter("{")
    for (const [name, value] of fields) {
      writer.add(`${JSON.stringify(name)}:${JSON.stringify(value)}`)
      yield
    }
    return yield* writer.end()
  })
  return Effect.flatMap(encoded, (body) => respondWith(body, headers))
}

/** The lists of servers (spec 3.6) and of their figures. */
export const makeLists = Effect.gen(function* () {
  const kept = yield* KeptServers
  const servers = yield* ServerManager
  const { making } = yield* LargeAnswers
  const recent = new RecentMap<string, { readonly body: JsonBody; readonly next: string | undefined }>(
    RECENT_BYTES,
    (_, { body }) => body.length
  )

  const bounded = Effect.fnUntraced(function* <A, E, R>(
    { limit }: ListRequest,
    list: Effect.Effect<A, E, R>
  ) {
    const count = Math.min(limit ?? Infinity, yield* servers.size)
    const bytes = Math.min(LIST_BYTES, SUMMARY_BYTES * count)
    return yield* bytes <= SHORT_BYTES ? list : making(bytes)(list)
  })

  const list = Effect.fnUntraced(function* ({ query, request }: ServersRequest<"list">) {
    const asked = yield* parseListQuery(query)
    if (query.deleted === true) {
      const { next, servers } = yield* kept.list(asked, parseInclude(query.include))
      const body = query.ids_only === true ? servers.map(({ id }) => id) : servers
      return HttpServerResponse.jsonUnsafe(body, { headers: linkOf(request.url, next) })
    }
    const what = query.ids_only === true ? "ids" : parseInclude(query.include)
    const within = yield* currentRestriction
    // Before the selection, as a list may show later changes than its version.
    const { cursor, state } = yield* servers.version

    if (what !== "ids" && has(what, "stats")) {
      const withFigures = Effect.gen(function* () {
        const page = yield* servers.select(asked)
        const stats = yield* servers.statsOf(page.ids)
        const etag = tagOf(state, request.url, within, [...stats])
        return yield* unlessKnown({ etag, cursor }, (headers) =>
          Effect.flatMap(page.encode(what, stats), (body) =>
            respondWith(body, { ...linkOf(request.url, page.next), ...headers })
          )
        )
      })
      return yield* bounded(asked, withFigures)
    }

    const etag = tagOf(state, request.url, within)
    const isPage = asked.limit !== undefined || asked.after !== undefined
    if (!isPage && (yield* servers.size) > LONGEST_WHOLE) {
      return yield* unlessKnown({ etag, cursor }, (headers) =>
        Effect.flatMap(servers.stream(asked.filter, what), (body) => respondWithStream(body, headers))
      )
    }
    const made = Effect.gen(function* () {
      const page = yield* servers.select(asked)
      const body = yield* what === "ids" ? page.encodeIds : page.encode(what)
      const whole = { body, next: page.next }
      recent.set(etag, whole)
      return whole
    })
    return yield* unlessKnown({ etag, cursor }, (headers) => {
      const known = recent.get(etag)
      const whole = known === undefined ? made : Effect.succeed(known)
      const respond = Effect.flatMap(whole, ({ body, next }) =>
        respondWith(body, { ...linkOf(request.url, next), ...headers })
      )
      return bounded(asked, respond)
    })
  })

  const statsOfMany = Effect.fnUntraced(function* ({ query, request }: ServersRequest<"statsOfMany">) {
    const asked = yield* parseListQuery(query)
    const respond = Effect.gen(function* () {
      const page = yield* servers.select(asked)
      const figures = yield* servers.statsOf(page.ids)
      return yield* respondWithFields(
        Iterable.map(page.ids, (id) => [id, figures.get(id) ?? null] as const),
        linkOf(request.url, page.next)
      )
    })
    return yield* bounded(asked, respond)
  })

  return { list, statsOfMany }
})
