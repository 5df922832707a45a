import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { dirname, extname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"

/** The folder of the browser's code: TypeScript in a checkout, JavaScript in the package. */
const folder = resolve(dirname(fileURLToPath(import.meta.url)), "../dashboard")

/** The modules of packages that the browser's code imports, and their files. */
const modules: Readonly<Record<string, string>> = {
  preact: "preact",
  "preact/hooks": "preact/hooks",
  "@preact/signals-core": "@preact/signals-core",
  "@preact/signals": "@preact/signals",
  uplot: "uplot/dist/uPlot.esm.js",
  "@xterm/xterm": "@xterm/xterm/lib/xterm.mjs",
  "@xterm/addon-fit": "@xterm/addon-fit/lib/addon-fit.mjs"
}

/** The style sheets of packages, which follow those of Muster. */
const styles = ["uplot/dist/uPlot.min.css", "@xterm/xterm/css/xterm.css"]

/** Modules that a page loads only when it shows a console or a plot. */
const late: ReadonlySet<string> = new Set(["uplot", "@xterm/xterm", "@xterm/addon-fit"])

const SCRIPT = "text/javascript; charset=utf-8"
const STYLE = "text/css; charset=utf-8"

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
  /** The name with which modules import a package; absent: a file of Muster. */
  readonly specifier?: string
  readonly isLate: boolean
}

/** Returns the address of a file; a changed file has another address. */
export const addressOf = ({ hash, name }: Pick<DashboardFile, "hash" | "name">): string =>
  `${ASSETS}/${name}?${hash}`

const encoder = new TextEncoder()

const made = (name: string, text: string, contentType: string, more: Partial<DashboardFile> = {}) => {
  // The maps of packages are not served.
  const body = encoder.encode(text.replace(/^\/[/*]# sourceMappingURL=.*$/m, ""))
  const hash = createHash("sha256").update(body).digest("base64url").slice(0, 16)
  return { name, hash, contentType, body, isLate: false, ...more } satisfies DashboardFile
}

const packageFile = (path: string) => readFileSync(fileURLToPath(import.meta.resolve(path)), "utf8")

const ownFile = (path: string): DashboardFile | undefined => {
  const name = path.replaceAll("\\", "/")
  const text = () => readFileSync(join(folder, path), "utf8")
  switch (extname(path)) {
    case ".js":
      return made(name, text(), SCRIPT)
    case ".ts":
      return name.endsWith(".d.ts") ? undefined : made(name, stripTypeScriptTypes(text()), SCRIPT)
    default:
      return undefined
  }
}

/**
 * Reads all files of the dashboard, with the style sheets in one, and removes the types of those in TypeScript. Each file
 * yields to requests.
 */
export const readDashboardFiles = Effect.gen(function* () {
  const files: Array<DashboardFile> = []
  for (const [specifier, path] of Object.entries(modules)) {
    const isLate = late.has(specifier)
    files.push(made(`packages/${specifier}.js`, packageFile(path), SCRIPT, { specifier, isLate }))
    yield* Effect.yieldNow
  }
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" }).toSorted()
  const sheets = paths.filter((path) => extname(path) === ".css")
  const style = [
    ...sheets.map((path) => readFileSync(join(folder, path), "utf8")),
    ...styles.map(packageFile)
  ]
  files.push(made("style.css", style.join("\n"), STYLE))
  for (const path of paths) {
    const file = ownFile(path)
    if (file !== undefined) files.push(file)
    yield* Effect.yieldNow
  }
  return files
})

/** Whether a file is a module that the page loads at once. */
export const isEarlyModule = ({ contentType, isLate, name }: DashboardFile): boolean =>
  contentType === SCRIPT && !isLate && !name.startsWith("initialTheme.")

/** Maps the imports of all modules to their addresses. */
export const importMapOf = (files: ReadonlyArray<DashboardFile>): string =>
  JSON.stringify({
    imports: Object.fromEntries(
      files
        .filter(({ contentType }) => contentType === SCRIPT)
        .map((file) => [file.specifier ?? `${ASSETS}/${file.name}`, addressOf(file)])
    )
  })
