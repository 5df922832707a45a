import { createHash } from "node:crypto"
import { Context, Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { SplitBody } from "./SplitBody.ts"

/** A response body with its `ETag`, and the cursor of the journal up to which it shows all changes. */
export interface Versioned<Body = string> {
  readonly body: Body
  readonly etag: string
  readonly cursor: number
  /** The body in gzip; absent: the body is not compressed. */
  readonly gzip?: Effect.Effect<SplitBody>
}

/** Returns the weak `ETag` of a body: equal bytes have an equal tag on every replica. */
export const etagOf = (body: string | Uint8Array): string =>
  `W/"${createHash("sha1").update(body).digest("base64url")}"`

/** Encodes a value as JSON, with its `ETag`. */
export const versioned = (value: unknown, cursor: number): Versioned => {
  const body = JSON.stringify(value)
  return { body, etag: etagOf(body), cursor }
}

/** The longest body that is sent as text: Node.js writes a head and a text in one piece. */
const LONGEST_TEXT = 16 * 1024

const encoder = new TextEncoder()

interface JsonOptions {
  readonly contentType: "application/json"
  readonly headers: Readonly<Record<string, string>>
}

/** The platform makes the response to a request of an upgrade, which takes one buffer only. */
const takesParts = ({ headers }: HttpServerRequest.HttpServerRequest) => headers.upgrade === undefined

const ofBytes = (body: SplitBody, isSplit: boolean, options: JsonOptions) =>
  isSplit && body.parts.length > 1
    ? HttpServerResponse.raw(body, { ...options, contentLength: body.length })
    : HttpServerResponse.uint8Array(body.joined(), options)

const ofText = (text: string, options: JsonOptions) => {
  const response = HttpServerResponse.text(text, { contentType: options.contentType })
  // These names are lower-case, and the headers belong to this response: to pass them on would copy all of them twice.
  Object.assign(response.headers, options.headers)
  return response
}

const ofBody = (body: string | SplitBody, isSplit: boolean, options: JsonOptions) => {
  const isLong = body.length > LONGEST_TEXT
  if (typeof body !== "string")
    return isLong ? ofBytes(body, isSplit, options) : ofText(Buffer.from(body.joined()).toString(), options)
  return isLong ? HttpServerResponse.uint8Array(encoder.encode(body), options) : ofText(body, options)
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

/** Responds with a JSON body in several buffers. */
export const respondWith = (body: SplitBody, headers: Readonly<Record<string, string>> = {}) =>
  Effect.map(HttpServerRequest.HttpServerRequest, (request) =>
    ofBody(body, takesParts(request), { contentType: "application/json", headers: { ...headers } })
  )

/** Responds with a JSON body, or with 304 to a caller that has it (spec 3.6). */
export const conditional = (
  { body, cursor, etag, gzip }: Versioned<string | SplitBody>,
  headers: Readonly<Record<string, string>> = {}
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest> =>
  Effect.withFiber((fiber) => {
    const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
    const all: Record<string, string> = { ...headers, etag, "x-muster-cursor": String(cursor) }
    if (gzip !== undefined) all.vary = "Accept-Encoding"
    const known = request.headers["if-none-match"]?.split(",").map(withoutWeak)
    if (known?.includes("*") || known?.includes(withoutWeak(etag))) {
      return Effect.succeed(HttpServerResponse.empty({ status: 304, headers: all }))
    }
    const contentType = "application/json"
    return gzip !== undefined && acceptedEncodings(request.headers["accept-encoding"]).has("gzip")
      ? Effect.map(gzip, (bytes) =>
          ofBytes(bytes, takesParts(request), {
            contentType,
            headers: { ...all, "content-encoding": "gzip" }
          })
        )
      : Effect.succeed(ofBody(body, takesParts(request), { contentType, headers: all }))
  })
