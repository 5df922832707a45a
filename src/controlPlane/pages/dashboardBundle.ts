/** How the code of the dashboard becomes the files that the browser loads. */
import { readdirSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join, resolve } from "node:path"
import type { OutputOptions, Plugin, RolldownOptions } from "rolldown"

const folder = resolve(import.meta.dirname, "../../dashboard")

/** The style sheets of packages, which follow those of Muster. */
const ofPackages = ["uplot/dist/uPlot.min.css", "@xterm/xterm/css/xterm.css"]

const styles = (): string => {
  const own = readdirSync(join(folder, "styles"))
    .toSorted()
    .map((name) => join(folder, "styles", name))
  const theirs = ofPackages.map((path) => createRequire(import.meta.url).resolve(path))
  return [...own, ...theirs].map((path) => readFileSync(path, "utf8")).join("\n")
}

const withStyles: Plugin = {
  name: "one style sheet",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "style.css", source: styles() })
  }
}

const output = {
  entryFileNames: "[name].js",
  chunkFileNames: "[name].js",
  comments: false,
  minify: true
} satisfies OutputOptions

/** One file for the page, one for each part that it loads late, and the script that sets its theme before. */
export const dashboardBundle = {
  input: { main: join(folder, "main.tsx"), initialTheme: join(folder, "initialTheme.ts") },
  plugins: [withStyles],
  output
} satisfies RolldownOptions
