import { createHash } from "node:crypto"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"

/** ETags of bodies that are made once and sent many times. */
const known = new WeakMap<Uint8Array, string>()

const etagOf = (body: Uint8Array): string => {
  const etag = known.get(body) ?? `"${createHash("sha256").update(body).digest("base64url").slice(0, 27)}"`
  known.set(body, etag)
  return etag
}

/** RFC 9110, section 13.1.2: a weak comparison with each of the tags, or with any by `*`. */
const names = (ifNoneMatch: string, etag: string): boolean =>
  ifNoneMatch.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag)

/** Of the headers of the whole answer, those that its 304 repeats. */
const kept = ({ headers: { vary } }: HttpServerResponse.HttpServerResponse) =>
  vary === undefined ? {} : { vary }

/**
 * For pages that stay the same as long as the process runs: a browser keeps them and asks whether they have changed,
 * which an upgrade does; the answer to that is 304 without a body.
 */
export const CachedPages = HttpRouter.middleware((page) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const response = yield* page
    if (response.status !== 200 || response.body._tag !== "Uint8Array") return response
    const etag = etagOf(response.body.body)
    const headers = { etag, "cache-control": response.headers["cache-control"] ?? "no-cache" }
    return names(request.headers["if-none-match"] ?? "", etag)
      ? HttpServerResponse.empty({ status: 304, headers: { ...kept(response), ...headers } })
      : HttpServerResponse.setHeaders(response, headers)
  })
).layer
