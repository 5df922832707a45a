import { createHash } from "node:crypto"
import { Effect, Semaphore } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"

const known = new WeakMap<Uint8Array, string>()

const etagOf = (body: Uint8Array): string => {
  const etag = known.get(body) ?? `"${createHash("sha256").update(body).digest("base64url").slice(0, 27)}"`
  known.set(body, etag)
  return etag
}

/** RFC 9110, section 13.1.2: a weak comparison with each tag; `*` matches all. */
const names = (ifNoneMatch: string, etag: string): boolean =>
  ifNoneMatch.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag)

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
        if (names(request.headers["if-none-match"] ?? "", etag)) {
          return HttpServerResponse.empty({ status: 304, headers: { ...kept(response), ...headers } })
        }
        const large =
          response.body.contentLength >= LARGE && response.headers["content-encoding"] === undefined
        if (large && request.method !== "HEAD") yield* admit(permits)
        return HttpServerResponse.setHeaders(response, headers)
      })
  })
).layer
