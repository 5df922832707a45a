import { hash } from "node:crypto"
import { constants, createGzip, gzip } from "node:zlib"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Context, Effect, type Stream } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { JsonBody } from "./LargeAnswers.ts"

/** The `ETag` of a response, and the cursor of the journal up to which it shows all changes. */
export interface Version {
  readonly etag: string
  readonly cursor: number
}

export interface Versioned extends Version {
  readonly body: string
}

type Headers = Readonly<Record<string, string>>

/** Returns the weak `ETag` of a text, for which equal texts have an equal tag on every replica. */
export const etagOf = (text: string): string => `W/"${hash("sha1", text, "base64url")}"`

/** Encodes a value as JSON, with its `ETag`. */
export const versioned = (value: unknown, cursor: number): Versioned => {
  const body = JSON.stringify(value)
  return { body, etag: etagOf(body), cursor }
}

/** The longest body that is sent as text: Node.js writes a head and a text in one piece. */
const LONGEST_TEXT = 16 * 1024

/** Smallest list that is compressed, in bytes. */
const SMALLEST_COMPRESSED = 1024

const encoder = new TextEncoder()
const contentType = "application/json"

const ofBytes = (bytes: Uint8Array, headers: Headers) =>
  HttpServerResponse.uint8Array(bytes, { contentType, headers: { ...headers } })

const ofBody = (body: JsonBody, headers: Headers) => {
  if (typeof body !== "string") return ofBytes(body, headers)
  if (body.length > LONGEST_TEXT) return ofBytes(encoder.encode(body), headers)
  const response = HttpServerResponse.text(body, { contentType })
  // These names are lower-case, and the headers belong to this response: to pass them on would copy all of them twice.
  Object.assign(response.headers, headers)
  return response
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

/** Compresses a body, on the threads of zlib. */
const compressed = (body: JsonBody) =>
  Effect.callback<Uint8Array>((resume) =>
    gzip(body, { level: constants.Z_BEST_SPEED }, (error, bytes) =>
      resume(error === null ? Effect.succeed(bytes) : Effect.die(error))
    )
  )

const acceptsGzip = Effect.map(HttpServerRequest.HttpServerRequest, ({ headers }) =>
  acceptedEncodings(headers["accept-encoding"]).has("gzip")
)

/** Responds with a JSON body of any length, which is compressed for a caller that accepts gzip. */
export const respondWith = (body: JsonBody, headers: Headers = {}) =>
  Effect.flatMap(acceptsGzip, (isAccepted) => {
    const all = { ...headers, vary: "Accept-Encoding" }
    return body.length < SMALLEST_COMPRESSED || !isAccepted
      ? Effect.succeed(ofBody(body, all))
      : Effect.map(compressed(body), (bytes) => ofBytes(bytes, { ...all, "content-encoding": "gzip" }))
  })

/** A compressor with 64 KiB of memory instead of 256: each connection has one while it reads. */
const makeGzip = () => createGzip({ level: constants.Z_BEST_SPEED, windowBits: 13, memLevel: 6 })

/** Responds with a JSON body that is made as it is read, compressed for a caller that accepts gzip. */
export const respondWithStream = (body: Stream.Stream<Uint8Array>, headers: Headers) =>
  Effect.map(acceptsGzip, (isAccepted) => {
    const all = { ...headers, vary: "Accept-Encoding" }
    return isAccepted
      ? HttpServerResponse.stream(NodeStream.pipeThroughSimple(body, makeGzip), {
          contentType,
          headers: { ...all, "content-encoding": "gzip" }
        })
      : HttpServerResponse.stream(body, { contentType, headers: all })
  })

const versionHeaders = ({ cursor, etag }: Version) => ({ etag, "x-muster-cursor": String(cursor) })

/** Whether the caller has the content of a tag: a weak comparison, and `*` matches all (RFC 9110, section 13.1.2). */
export const isKnown = (
  { headers }: Pick<HttpServerRequest.HttpServerRequest, "headers">,
  etag: string
): boolean => {
  const known = headers["if-none-match"]?.split(",").map(withoutWeak)
  return known?.includes("*") === true || known?.includes(withoutWeak(etag)) === true
}

/** Responds as `respond` does with the headers of a version, or with 304 to a caller that has it (spec 1.3). */
export const unlessKnown = <E, R>(
  version: Version,
  respond: (headers: Headers) => Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R | HttpServerRequest.HttpServerRequest> =>
  Effect.withFiber((fiber) => {
    const headers = versionHeaders(version)
    return isKnown(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest), version.etag)
      ? Effect.succeed(HttpServerResponse.empty({ status: 304, headers }))
      : respond(headers)
  })

/** Responds with a JSON body, or with 304 to a caller that has it (spec 1.3). */
export const conditional = (versioned: Versioned, headers: Headers = {}) =>
  unlessKnown(versioned, (own) => Effect.succeed(ofBody(versioned.body, { ...headers, ...own })))
