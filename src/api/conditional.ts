import { createHash } from "node:crypto"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"

/** A response body with its `ETag`, and the cursor of the journal up to which it shows all changes. */
export interface Versioned {
  readonly body: Uint8Array
  readonly etag: string
  readonly cursor: number
  /** The body in gzip; absent: the body is not compressed. */
  readonly gzip?: Effect.Effect<Uint8Array>
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

/** Returns the encodings that `Accept-Encoding` allows (RFC 9110, section 12.5.3). */
export const acceptedEncodings = (header = ""): ReadonlySet<string> => {
  const refused = /;\s*q=0(?:\.0{0,3})?\s*$/
  return new Set(
    header
      .split(",")
      .filter((item) => !refused.test(item))
      .map((item) => item.replace(/;.*$/s, "").trim().toLowerCase())
  )
}

/** Responds with a JSON body, or with 304 to a caller that has it (life.md, "Reading"). */
export const conditional = (
  { body, cursor, etag, gzip }: Versioned,
  headers: Readonly<Record<string, string>> = {}
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest> =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
    const vary: Record<string, string> = gzip === undefined ? {} : { vary: "Accept-Encoding" }
    const all = { ...headers, ...vary, etag, "x-muster-cursor": String(cursor) }
    const known = request.headers["if-none-match"]?.split(",").map(withoutWeak) ?? []
    if (known.includes("*") || known.includes(withoutWeak(etag))) {
      return Effect.succeed(HttpServerResponse.empty({ status: 304, headers: all }))
    }
    const respond = (bytes: Uint8Array, encoding: Record<string, string> = {}) =>
      HttpServerResponse.uint8Array(bytes, {
        contentType: "application/json",
        headers: { ...all, ...encoding }
      })
    return gzip !== undefined && acceptedEncodings(request.headers["accept-encoding"]).has("gzip")
      ? Effect.map(gzip, (bytes) => respond(bytes, { "content-encoding": "gzip" }))
      : Effect.succeed(respond(body))
  })
