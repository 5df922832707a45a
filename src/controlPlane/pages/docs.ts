import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { Effect, Schema } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { makeCompressed, makeFile } from "./CachedPages.ts"
import { FAVICON, favicon, HTML, page, pageHeaders, policyOf } from "./publicHtml.ts"

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

/**
 * `GET /docs`: a page that renders the OpenAPI document with Scalar. The first use reads and compresses the script.
 */
export const DocsRoutes = (title: string) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const encoder = new TextEncoder()
      const script = yield* Effect.cached(
        Effect.flatMap(scalar, (javascript) =>
          makeFile(SCRIPT, "text/javascript; charset=utf-8", encoder.encode(`${javascript}${start}`))
        )
      )
      const html = yield* makeCompressed(
        Effect.map(script, ({ address }) => encoder.encode(reference(title, address))),
        HTML
      )
      yield* router.add("GET", "/docs", Effect.map(html, HttpServerResponse.setHeaders(pageHeaders(POLICY))))
      yield* router.add("GET", FAVICON, HttpServerResponse.text(favicon, { contentType: "image/svg+xml" }))
      yield* router.add(
        "GET",
        SCRIPT,
        Effect.flatMap(script, ({ send }) => send)
      )
    })
  )
