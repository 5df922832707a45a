import { createHash } from "node:crypto"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { brotliCompress, constants, gzip } from "node:zlib"
import { Effect, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { acceptedEncodings } from "../http/conditional.ts"
import { FAVICON, favicon, HTML, page, pageHeaders, policyOf } from "./html.ts"

const DOCUMENT = "/openapi.json"
const SCRIPT = "/docs/scalar.js"

/** Requests stay on this host, and features that would call others are off. */
const configuration = {
  _integration: "html",
  url: DOCUMENT,
  telemetry: false,
  withDefaultFonts: false,
  showDeveloperTools: "never",
  hideClientButton: true,
  authentication: { preferredSecurityScheme: "bearer" },
  agent: { disabled: true },
  mcp: { disabled: true }
}

const start = `
window.Scalar.createApiReference("#reference", ${JSON.stringify(configuration)})
`

/** Scalar injects inline styles; scripts and requests go to the service only. */
const POLICY = policyOf(
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'"
)

const reference = (title: string, script: string) =>
  page(title, "", `<div id="reference"></div>\n<script src="${script}"></script>`)

const ScalarModule = Schema.Struct({ javascript: Schema.String })

/** The copy of Scalar in the package `effect`, whose own page would inline it. */
const scalar = Effect.try((): unknown => {
  const load = createRequire(import.meta.url)
  return load(join(dirname(load.resolve("effect/http-api/HttpApiScalar")), "internal/httpApiScalar.js"))
}).pipe(
  Effect.flatMap(Schema.decodeUnknownEffect(ScalarModule)),
  // Zod tests whether it may compile code. The policy forbids that, and the browser would report the test.
  Effect.map(({ javascript }) => javascript.replace('return new Function(""),!0', "return!1")),
  Effect.orDie
)

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

/** Lets caches keep a response whose address has the hash of its content. */
export const immutable = (response: HttpServerResponse.HttpServerResponse) =>
  HttpServerResponse.setHeader(response, "cache-control", "public, max-age=31536000, immutable")

/**
 * `GET /docs`: a page that renders the OpenAPI document with Scalar. The script is a file named by the hash of its
 * content; the first use reads and compresses it.
 */
export const DocsRoutes = (title: string) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const encoder = new TextEncoder()
      const script = yield* Effect.cached(
        Effect.map(scalar, (javascript) => {
          const body = encoder.encode(`${javascript}${start}`)
          return { body, hash: createHash("sha256").update(body).digest("base64url").slice(0, 16) }
        })
      )
      const html = yield* makeCompressed(
        Effect.map(script, ({ hash }) => encoder.encode(reference(title, `${SCRIPT}?${hash}`))),
        HTML
      )
      const compressed = yield* makeCompressed(
        Effect.map(script, ({ body }) => body),
        "text/javascript; charset=utf-8"
      )
      yield* router.add("GET", "/docs", Effect.map(html, HttpServerResponse.setHeaders(pageHeaders(POLICY))))
      yield* router.add("GET", FAVICON, HttpServerResponse.text(favicon, { contentType: "image/svg+xml" }))
      yield* router.add(
        "GET",
        SCRIPT,
        Effect.gen(function* () {
          const { url } = yield* HttpServerRequest.HttpServerRequest
          const response = yield* compressed
          // Another replica may serve another version under this name.
          return url.endsWith(`?${(yield* script).hash}`) ? immutable(response) : response
        })
      )
    })
  )
