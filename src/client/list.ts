import { Effect } from "effect"
import type { HttpClientResponse } from "effect/http"
import type { Server } from "../contract/domain/Server.ts"
import type { RequestOf } from "./calls.ts"
import type { Calls, ServerEndpoints } from "./creation.ts"
import { unexpected } from "./responses.ts"

type Query = NonNullable<RequestOf<ServerEndpoints["list"]>["query"]>

/** The filters of a list of servers, and further fields of its servers; `status` is always there. */
export interface ListOptions extends Omit<Query, "ids_only" | "include" | "limit" | "after"> {
  readonly include?: ReadonlyArray<string>
}

/** The servers at a cursor. A follower that begins at this cursor misses no change and repeats none. */
export interface Snapshot {
  readonly servers: ReadonlyArray<Server>
  readonly cursor: number
}

/** Returns a cursor, if the text is one. */
export const cursorIn = (text: string | undefined): number | undefined =>
  text !== undefined && /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))
    ? Number(text)
    : undefined

/** Returns the cursor of a response (spec 3.6). */
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
