import { createHash } from "node:crypto"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { NotFound } from "../domain/errors.ts"
import {
  ASSETS,
  addressOf,
  type DashboardFile,
  importMapOf,
  isEarlyModule,
  readDashboardFiles
} from "./dashboardFiles.ts"
import { immutable, makeCompressed } from "./docs.ts"
import { HTML, page, pageHeaders, policyOf } from "./html.ts"

/** The pages of the dashboard, which are one document: its script shows what the path names. */
const PAGES = [
  "/dashboard",
  "/dashboard/nodes",
  "/dashboard/events",
  "/dashboard/new",
  "/dashboard/servers/:server"
] as const

const FILES = `${ASSETS}/*` as const

/** Paths of the dashboard, for the table of routes. */
export const DASHBOARD_PATHS: ReadonlyArray<string> = [...PAGES, FILES]

const names = (files: ReadonlyArray<DashboardFile>, wanted: RegExp) =>
  files.filter(({ name }) => wanted.test(name))

const documentOf = (title: string, files: ReadonlyArray<DashboardFile>) => {
  const importMap = importMapOf(files)
  const head = [
    ...names(files, /^style\.css$/).map((file) => `<link rel="stylesheet" href="${addressOf(file)}">`),
    ...names(files, /^initialTheme\./).map((file) => `<script src="${addressOf(file)}"></script>`),
    `<script type="importmap">${importMap}</script>`,
    ...files.filter(isEarlyModule).map((file) => `<link rel="modulepreload" href="${addressOf(file)}">`),
    ...names(files, /^main\./).map((file) => `<script type="module" src="${addressOf(file)}"></script>`)
  ]
  const body = `<div id="app"><p class="boot">Loading the dashboard. If nothing follows, load the page again.</p></div>
<noscript><p>The dashboard needs JavaScript. <a href="/">The start page</a> and <a href="/nodes">the list of nodes</a> do not.</p></noscript>`
  const hash = createHash("sha256").update(importMap).digest("base64")
  return { html: page(title, head.join("\n"), body), importMapHash: hash }
}

/** Scripts and styles are files of the service; requests and streams go to the service only. */
const policyFor = (importMapHash: string) =>
  policyOf(
    `script-src 'self' 'sha256-${importMapHash}'`,
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'"
  )

/**
 * `GET /dashboard`: a page for people on the public API. The first request reads the files, which stay in memory. Each has
 * the hash of its content in its address and is compressed at its first use.
 */
export const DashboardRoutes = (title: string) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const encoder = new TextEncoder()
      const loaded = yield* Effect.cached(
        Effect.gen(function* () {
          const files = yield* readDashboardFiles
          const { html, importMapHash } = documentOf(title, files)
          const bodies = yield* Effect.forEach(files, ({ body, contentType, hash, name }) =>
            Effect.map(
              makeCompressed(Effect.succeed(body), contentType),
              (send) => [name, { hash, send }] as const
            )
          )
          return {
            document: yield* makeCompressed(Effect.succeed(encoder.encode(html)), HTML),
            headers: pageHeaders(policyFor(importMapHash)),
            files: new Map(bodies)
          }
        })
      )
      const document = Effect.gen(function* () {
        const { document, headers } = yield* loaded
        return HttpServerResponse.setHeaders(yield* document, headers)
      })
      for (const path of PAGES) yield* router.add("GET", path, document)
      yield* router.add(
        "GET",
        FILES,
        Effect.gen(function* () {
          const { url } = yield* HttpServerRequest.HttpServerRequest
          const { files } = yield* loaded
          const [path = "", query = ""] = url.split("?")
          const file = files.get(path.slice(ASSETS.length + 1))
          if (file === undefined) {
            return yield* new NotFound({ detail: `no file ${path}`, hint: "Load /dashboard again." })
          }
          const response = yield* file.send
          return query === file.hash ? immutable(response) : response
        })
      )
    })
  )
