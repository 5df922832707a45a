/** Pages and their files, which are in memory: encodings, `ETag` and caching. */
import { createHash } from "node:crypto"
import { brotliCompress, constants, gzip } from "node:zlib"
import { Effect, Semaphore } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { acceptedEncodings, isKnown } from "../http/conditional.ts"

const hashOf = (body: Uint8Array, length: number): string =>
  createHash("sha256").update(body).digest("base64url").slice(0, length)

const known = new WeakMap<Uint8Array, string>()

const etagOf = (body: Uint8Array): string => {
  const etag = known.get(body) ?? `"${hashOf(body, 27)}"`
  known.set(body, etag)
  return etag
}

/** Returns the headers that a 304 repeats. */
const kept = ({ headers: { vary } }: HttpServerResponse.HttpServerResponse) =>
  vary === undefined ? {} : { vary }

/** Size of a large body in bytes. Node's adapter awaits the end of a response from this size on. */
const LARGE = 1024 * 1024

/** Bound of large uncompressed bodies that are sent at the same time, to all clients. */
export const MOST_LARGE = 4

/** Holds the permit until the answer has been sent or its connection has closed. */
const admit = (permits: Semaphore.Semaphore) =>
  Effect.acquireRelease(permits.take(1), () => permits.release(1), { interruptible: true })

/** Browsers cache and revalidate these pages. {@link MOST_LARGE} large bodies are sent at a time; others wait. */
export const CachedPages = HttpRouter.middleware(
  Effect.gen(function* () {
    const permits = yield* Semaphore.make(MOST_LARGE)
    return (page) =>
      Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const response = yield* page
        if (response.status !== 200 || response.body._tag !== "Uint8Array") return response
        const etag = etagOf(response.body.body)
        const headers = { etag, "cache-control": response.headers["cache-control"] ?? "no-cache" }
        if (isKnown(request, etag)) {
          return HttpServerResponse.empty({ status: 304, headers: { ...kept(response), ...headers } })
        }
        const large =
          response.body.contentLength >= LARGE && response.headers["content-encoding"] === undefined
        if (large && request.method !== "HEAD") yield* admit(permits)
        return HttpServerResponse.setHeaders(response, headers)
      })
  })
).layer

const compressed = (compress: (done: (error: Error | null, result: Buffer) => void) => void) =>
  Effect.callback<Uint8Array>((resume) => {
    compress((error, result) => resume(error === null ? Effect.succeed(result) : Effect.die(error)))
  })

const encodings = Effect.fnUntraced(function* (body: Uint8Array) {
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }
  const [br, gz] = yield* Effect.all(
    [
      compressed((done) => brotliCompress(body, quality, done)),
      compressed((done) => gzip(body, { level: 9 }, done))
    ],
    { concurrency: 2 }
  )
  return { br, gzip: gz }
})

/** Returns the best encoding that `Accept-Encoding` allows (RFC 9110, section 12.5.3). */
export const acceptedEncoding = (header: string): "br" | "gzip" | "identity" => {
  const accepted = acceptedEncodings(header)
  return accepted.has("br") ? "br" : accepted.has("gzip") ? "gzip" : "identity"
}

/** Makes a handler that returns a body in the best encoding of the client; the first use makes and compresses it. */
export const makeCompressed = Effect.fnUntraced(function* (
  make: Effect.Effect<Uint8Array>,
  contentType: string
) {
  const body = yield* Effect.cached(make)
  const bodies = yield* Effect.cached(Effect.flatMap(body, encodings))
  return Effect.gen(function* () {
    const { headers } = yield* HttpServerRequest.HttpServerRequest
    const encoding = acceptedEncoding(headers["accept-encoding"] ?? "")
    return HttpServerResponse.uint8Array(encoding === "identity" ? yield* body : (yield* bodies)[encoding], {
      contentType,
      headers: {
        vary: "Accept-Encoding",
        ...(encoding === "identity" ? {} : { "content-encoding": encoding })
      }
    })
  })
})

/** Makes a file whose address has the hash of its content; caches keep the content of this address. */
export const makeFile = Effect.fnUntraced(function* (path: string, contentType: string, body: Uint8Array) {
  const hash = hashOf(body, 16)
  const compressed = yield* makeCompressed(Effect.succeed(body), contentType)
  const send = Effect.gen(function* () {
    const { url } = yield* HttpServerRequest.HttpServerRequest
    const response = yield* compressed
    // Another replica may serve another version under this name.
    return url.endsWith(`?${hash}`)
      ? HttpServerResponse.setHeader(response, "cache-control", "public, max-age=31536000, immutable")
      : response
  })
  return { address: `${path}?${hash}`, send }
})
