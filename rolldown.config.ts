/**
 * Bundles the program and the dashboard into `dist`. A start from one file for each module takes three times as long and
 * twice the memory.
 */
import { readFileSync, utimesSync } from "node:fs"
import { isBuiltin } from "node:module"
import { dirname, resolve } from "node:path"
import { defineConfig } from "rolldown"
import { version } from "./src/app/version.ts"
import { openApiDocuments } from "./src/contract/api/ApplicationApi.ts"
import { dashboardBundle } from "./src/controlPlane/pages/dashboardBundle.ts"

let began = new Date()

const PROGRAM = /readFileSync\(\s*new URL\("(\.\/[\w.]+)", import\.meta\.url\),\s*"utf8"\s*\)/g

const platform = "node"

// Names and lines stay for stack traces. V8 keeps a source in Latin-1 in half the memory.
const output = { dir: "dist", comments: false, charset: "ascii" } as const

export default defineConfig([
  {
    input: {
      run: "src/cli/run.ts",
      compareWorker: "src/daemon/comparison/compareWorker.ts",
      packWorker: "src/daemon/backups/packWorker.ts",
      patchWorker: "src/daemon/configPatch/patchWorker.ts"
    },
    platform,
    // dockerode: loaded only if an engine responds; its dependencies have optional parts in machine code, as ssh2 does.
    // rolldown: a checkout loads it if this bundle is stale.
    external: ["dockerode", "rolldown", "ssh2"],
    // The main file of jsonc-parser loads its parts by computed names.
    resolve: { mainFields: ["module", "main"] },
    // Effect looks for variables that bundlers of web pages put there.
    checks: { emptyImportMeta: false },
    plugins: [
      {
        // An import of a module of Node.js reads all of its exports. Getters among them load HTTP/2 and undici: 20 ms, 4 MiB.
        name: "modules of Node.js at the first use of an export",
        resolveId: (id, importer) =>
          isBuiltin(id) && !importer?.startsWith("\0") ? { id: `\0${id}`, moduleSideEffects: false } : null,
        load: (id) =>
          id.startsWith("\0") && isBuiltin(id.slice(1))
            ? `module.exports = process.getBuiltinModule(${JSON.stringify(id.slice(1))})`
            : null
      },
      {
        // Programs in Perl and sh, which are files beside their readers.
        name: "files as text",
        transform: {
          filter: { code: "import.meta.url" },
          handler: (code, id) =>
            code.replace(PROGRAM, (_, name: string) =>
              JSON.stringify(readFileSync(resolve(dirname(id), name), "utf8"))
            )
        }
      },
      {
        // To make one takes longer than most turns of the event loop of a service may.
        name: "OpenAPI documents",
        generateBundle() {
          for (const { make, path } of openApiDocuments)
            this.emitFile({ type: "asset", fileName: path.slice(1), source: JSON.stringify(make(version)) })
        }
      },
      {
        name: "the time of the sources",
        buildStart: () => {
          began = new Date()
        }
      }
    ],
    output: {
      ...output,
      dir: "dist/chunks",
      // A part that changes gets another name: those of earlier builds would stay.
      cleanDir: true,
      // As deep as `src/*/*.ts`, so that `../..` is the folder of the package, too.
      entryFileNames: "[name].js"
    }
  },
  {
    input: "src/main.ts",
    platform,
    plugins: [
      {
        name: "the bundle is as old as the sources that it was made of",
        writeBundle: () => utimesSync("dist/main.js", began, began)
      }
    ],
    output
  },
  { ...dashboardBundle, output: { ...dashboardBundle.output, dir: "dist/dashboard", cleanDir: true } }
])
