import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { extname, join, resolve } from "node:path"
import { Effect } from "effect"
import { NotFound } from "../../contract/domain/errors.ts"
import { dashboardBundle } from "./dashboardBundle.ts"

/** The folder of the browser's code: beside the bundle of the service the bundle of the dashboard, else its sources. */
const folder = resolve(
  import.meta.dirname,
  import.meta.url.endsWith(".ts") ? "../../dashboard" : "../dashboard"
)

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8"
}

/** The path below which the browser finds the files. */
export const ASSETS = "/dashboard/assets"

/** A file as the browser gets it. */
export interface DashboardFile {
  /** The path below {@link ASSETS}. */
  readonly name: string
  /** The hash of the content, which the address of the file has as its query. */
  readonly hash: string
  readonly contentType: string
  readonly body: Uint8Array
}

/** Returns the address of a file; a changed file has another address. */
export const addressOf = ({ hash, name }: Pick<DashboardFile, "hash" | "name">): string =>
  `${ASSETS}/${name}?${hash}`

const made = (name: string, body: Uint8Array): DashboardFile => ({
  name,
  hash: createHash("sha256").update(body).digest("base64url").slice(0, 16),
  contentType: contentTypes[extname(name)] ?? "application/octet-stream",
  body
})

const encoder = new TextEncoder()

/** Bundles the sources of a checkout, in memory. */
const bundled = Effect.tryPromise({
  try: () =>
    import("rolldown").then(({ build }) => build({ ...dashboardBundle, write: false, logLevel: "silent" })),
  catch: (cause) =>
    new NotFound({ detail: `the dashboard cannot be built: ${cause}`, hint: "Run `npm ci` and try again." })
}).pipe(
  Effect.map(({ output }) =>
    output.map((file) => {
      const content = file.type === "chunk" ? file.code : file.source
      return made(file.fileName, typeof content === "string" ? encoder.encode(content) : content)
    })
  )
)

/** Reads the files of the dashboard; if the service runs from its sources, bundles them first. */
export const readDashboardFiles = Effect.suspend(() =>
  existsSync(join(folder, "main.js"))
    ? Effect.succeed(readdirSync(folder).map((name) => made(name, readFileSync(join(folder, name)))))
    : bundled
)
