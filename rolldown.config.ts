/**
 * Bundles the program and the dashboard into `dist`. A start from one file for each module takes three times as long and
 * twice the memory.
 */
import { utimesSync } from "node:fs"
import { defineConfig } from "rolldown"
import { dashboardBundle } from "./src/pages/dashboardBundle.ts"

let began = new Date()

export default defineConfig([
  {
    input: { main: "src/main.ts", patchWorker: "src/daemon/configPatch/patchWorker.ts" },
    platform: "node",
    // dockerode: loaded only if an engine responds; its dependencies have optional parts in machine code.
    // rolldown: a checkout loads it if this bundle is stale.
    external: ["dockerode", "rolldown"],
    // The main file of jsonc-parser loads its parts by computed names.
    resolve: { mainFields: ["module", "main"] },
    plugins: [
      {
        // An import of node:http reads all of its exports, of which WebSocket loads undici.
        name: "node:http without undici",
        resolveId: (id) => (id === "node:http" ? "\0http" : undefined),
        load: (id) => (id === "\0http" ? 'module.exports = process.getBuiltinModule("node:http")' : undefined)
      },
      {
        // It loads tables of ICU, which only help texts need.
        name: "an Intl.Segmenter at its first use",
        transform: {
          filter: { code: "new Intl.Segmenter" },
          handler: (code) =>
            code.replace(
              /^const (\w+) = (?:\/\*.*\*\/)?(new Intl\.Segmenter\([^)]*\));?$/m,
              "let made\nconst $1 = { segment: (text) => (made ??= $2).segment(text) }"
            )
        }
      },
      {
        name: "the bundle is as old as the sources that it was made of",
        buildStart: () => {
          began = new Date()
        },
        writeBundle: () => utimesSync("dist/main.js", began, began)
      }
    ],
    output: {
      dir: "dist",
      // As deep as `src/*/*.ts`, so that `../..` is the folder of the package, too.
      entryFileNames: ({ name }) => (name === "main" ? "main.js" : "chunks/[name].js"),
      chunkFileNames: "chunks/[name]-[hash].js",
      // Names and lines stay for stack traces.
      comments: false,
      // V8 keeps a source in Latin-1 in half the memory.
      charset: "ascii"
    }
  },
  { ...dashboardBundle, output: { ...dashboardBundle.output, dir: "dist/dashboard", cleanDir: true } }
])
