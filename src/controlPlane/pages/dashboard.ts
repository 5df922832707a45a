import { existsSync, readdirSync, readFileSync } from "node:fs"
import { extname, join, resolve } from "node:path"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { NotFound } from "../../contract/domain/errors.ts"
import { makeCompressed, makeFile } from "./CachedPages.ts"
import { dashboardBundle } from "./dashboardBundle.ts"
import { HTML, page, pageHeaders, policyOf } from "./publicHtml.ts"

/** The folder of the browser's code: beside the bundle of the service the bundle of the dashboard, else its sources. */
const folder = resolve(import.meta.dirname, `${import.meta.url.endsWith(".ts") ? "../" : ""}../dashboard`)

/** The path below which the browser finds the files. */
const ASSETS = "/dashboard/assets"

/** The pages of the dashboard, which are one document: its script shows what the path names. */
const PAGES = [
  "/dashboard",
  "/dashboard/nodes",
  "/dashboard/rollouts",
  "/dashboard/schedules",
  "/dashboard/backups",
  "/dashboard/events",
  "/dashboard/keys",
  "/dashboard/quotas",
  "/dashboard/webhooks",
  "/dashboard/targets",
  "/dashboard/settings",
  "/dashboard/new",
  "/dashboard/deleted",
  "/dashboard/servers/:server"
] as const

/** No wildcard: one of `GET` makes the router match all routes step by step. */
const FILES = `${ASSETS}/:file` as const

const encoder = new TextEncoder()

interface NamedFile {
  readonly name: string
  readonly body: Uint8Array
}

/** Bundles the sources of a checkout, in memory. */
const bundled = Effect.tryPromise({
  try: () =>
    import("rolldown").then(({ build }) => build({ ...dashboardBundle, write: false, logLevel: "silent" })),
  catch: (cause) =>
    new NotFound({ detail: `the dashboard cannot be built: ${cause}`, hint: "Run `npm ci` and try again." })
}).pipe(
  Effect.map(({ output }) =>
    output.map((file): NamedFile => {
      const content = file.type === "chunk" ? file.code : file.source
      return { name: file.fileName, body: typeof content === "string" ? encoder.encode(content) : content }
    })
  )
)

/** Reads the files of the dashboard; if the service runs from its sources, bundles them first. */
export const readDashboardFiles: Effect.Effect<ReadonlyArray<NamedFile>, NotFound> = Effect.suspend(() =>
  existsSync(join(folder, "main.js"))
    ? Effect.succeed(readdirSync(folder).map((name) => ({ name, body: readFileSync(join(folder, name)) })))
    : bundled
)

/** The elements for the files, by their names. */
const elements: Readonly<Record<string, (address: string) => string>> = {
  "style.css": (address) => `<link rel="stylesheet" href="${address}">`,
  "initialTheme.js": (address) => `<script src="${address}"></script>`,
  "main.js": (address) => `<script type="module" src="${address}"></script>`
}

const documentOf = (title: string, files: ReadonlyMap<string, { readonly address: string }>): string => {
  const head = [...files].map(([name, { address }]) => elements[name]?.(address) ?? "").join("\n")
  const body = `<div id="app"><p class="boot">Loading the dashboard. If nothing follows, load the page again.</p></div>
<noscript><p>The dashboard needs JavaScript. <a href="/">The start page</a> and <a href="/nodes">the list of nodes</a> do not.</p></noscript>`
  return page(title, head, body)
}

/** Scripts and styles are files of the service; requests and streams go to the service only. */
const headers = pageHeaders(
  policyOf("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'")
)

/**
 * `GET /dashboard`: a page for people on the public API. The first request reads the files, which stay in memory; each
 * is compressed at its first use.
 */
export const DashboardRoutes = (title: string) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const loaded = yield* Effect.cached(
        Effect.gen(function* () {
          const files = yield* Effect.forEach(yield* readDashboardFiles, ({ body, name }) => {
            const type = extname(name) === ".css" ? "text/css" : "text/javascript"
            return Effect.map(
              makeFile(`${ASSETS}/${name}`, `${type}; charset=utf-8`, body),
              (file) => [name, file] as const
            )
          })
          const byName = new Map(files)
          const text = encoder.encode(documentOf(title, byName))
          return { document: yield* makeCompressed(Effect.succeed(text), HTML), byName }
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
          const { byName } = yield* loaded
          const [path = ""] = url.split("?")
          const file = byName.get(path.slice(ASSETS.length + 1))
          if (file === undefined) {
            return yield* new NotFound({ detail: `no file ${path}`, hint: "Load /dashboard again." })
          }
          return yield* file.send
        })
      )
    })
  )
