import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { NotFound } from "../../contract/domain/errors.ts"
import { ASSETS, addressOf, type DashboardFile, readDashboardFiles } from "./dashboardFiles.ts"
import { immutable, makeCompressed } from "./docs.ts"
import { HTML, page, pageHeaders, policyOf } from "./html.ts"

/** The pages of the dashboard, which are one document: its script shows what the path names. */
const PAGES = [
  "/dashboard",
  "/dashboard/nodes",
  "/dashboard/rollouts",
  "/dashboard/events",
  "/dashboard/keys",
  "/dashboard/quotas",
  "/dashboard/webhooks",
  "/dashboard/settings",
  "/dashboard/new",
  "/dashboard/servers/:server"
] as const

/** No wildcard: one of `GET` makes the router match all routes step by step. */
const FILES = `${ASSETS}/:file` as const

/** Returns the elements for the files that every page needs, and the attributes with the addresses of the others. */
const elementsOf = (files: ReadonlyArray<DashboardFile>) => {
  const head: Array<string> = []
  const late: Array<string> = []
  for (const file of files) {
    const address = addressOf(file)
    if (file.name === "style.css") head.push(`<link rel="stylesheet" href="${address}">`)
    else if (file.name === "initialTheme.js") head.push(`<script src="${address}"></script>`)
    else if (file.name === "main.js") head.push(`<script type="module" src="${address}"></script>`)
    else late.push(` data-${file.name.replace(/\.js$/, "")}="${address}"`)
  }
  return { head: head.join("\n"), late: late.join("") }
}

const documentOf = (title: string, files: ReadonlyArray<DashboardFile>): string => {
  const { head, late } = elementsOf(files)
  const body = `<div id="app"${late}><p class="boot">Loading the dashboard. If nothing follows, load the page again.</p></div>
<noscript><p>The dashboard needs JavaScript. <a href="/">The start page</a> and <a href="/nodes">the list of nodes</a> do not.</p></noscript>`
  return page(title, head, body)
}

/** Scripts and styles are files of the service; requests and streams go to the service only. */
const headers = pageHeaders(
  policyOf("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'")
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
          const bodies = yield* Effect.forEach(files, ({ body, contentType, hash, name }) =>
            Effect.map(
              makeCompressed(Effect.succeed(body), contentType),
              (send) => [name, { hash, send }] as const
            )
          )
          return {
            document: yield* makeCompressed(Effect.succeed(encoder.encode(documentOf(title, files))), HTML),
            files: new Map(bodies)
          }
        })
      )
      const document = Effect.gen(function* () {
        const { document } = yield* loaded
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
