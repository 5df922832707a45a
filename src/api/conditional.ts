import { createHash } from "node:crypto"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"

/** A response body with its `ETag`, and the cursor of the journal up to which it shows all changes. */
export interface Versioned {
  readonly body: Uint8Array
  readonly etag: string
  readonly cursor: number
}

/** Returns the weak `ETag` of a body: equal bytes have an equal tag on every replica. */
export const etagOf = (body: Uint8Array): string =>
  `W/"${createHash("sha1").update(body).digest("base64url")}"`

const encoder = new TextEncoder()

/** Encodes a value as JSON, with its `ETag`. */
export const versioned = (value: unknown, cursor: number): Versioned => {
  const body = encoder.encode(JSON.stringify(value))
  return { body, etag: etagOf(body), cursor }
}

const withoutWeak = (tag: string) => tag.trim().replace(/^W\//, "")

/** Responds with a JSON body, or with 304 to a caller that has it (life.md, "Reading"). */
export const conditional = (
  { body, cursor, etag }: Versioned,
  headers: Readonly<Record<string, string>> = {}
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest> =>
  Effect.map(HttpServerRequest.HttpServerRequest, (request) => {
    const all = { ...headers, etag, "x-muster-cursor": String(cursor) }
    const known = request.headers["if-none-match"]?.split(",").map(withoutWeak) ?? []
    return known.includes("*") || known.includes(withoutWeak(etag))
      ? HttpServerResponse.empty({ status: 304, headers: all })
      : HttpServerResponse.uint8Array(body, { contentType: "application/json", headers: all })
  })
