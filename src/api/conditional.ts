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

/** The longest body that is sent as text: Node.js writes a head and a text in one piece. */
const LONGEST_TEXT = 16 * 1024

const jsonOf = (body: Uint8Array, headers: Readonly<Record<string, string>>) => {
  const options = { contentType: "application/json", headers }
  return body.length > LONGEST_TEXT
    ? HttpServerResponse.uint8Array(body, options)
    : HttpServerResponse.text(Buffer.from(body.buffer, body.byteOffset, body.length).toString(), options)
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
    const all: Record<string, string> = { ...headers, etag, "x-muster-cursor": String(cursor) }
    if (gzip !== undefined) all.vary = "Accept-Encoding"
    const known = request.headers["if-none-match"]?.split(",").map(withoutWeak)
    if (known?.includes("*") || known?.includes(withoutWeak(etag))) {
      return Effect.succeed(HttpServerResponse.empty({ status: 304, headers: all }))
    }
    return gzip !== undefined && acceptedEncodings(request.headers["accept-encoding"]).has("gzip")
      ? Effect.map(gzip, (bytes) =>
          HttpServerResponse.uint8Array(bytes, {
            contentType: "application/json",
            headers: { ...all, "content-encoding": "gzip" }
          })
        )
      : Effect.succeed(jsonOf(body, all))
  })
