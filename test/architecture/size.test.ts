import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2390,
  "src/cli": 10105,
  "src/client": 2220,
  "src/contract": 10309,
  "src/controlPlane/audit": 474,
  "src/controlPlane/backups": 1842,
  "src/controlPlane/blueprints": 5116,
  "src/controlPlane/events": 1867,
  "src/controlPlane/files": 1323,
  "src/controlPlane/http": 3674,
  "src/controlPlane/keys": 1133,
  "src/controlPlane/nodes": 4598,
  "src/controlPlane/operations": 1000,
  "src/controlPlane/pages": 1067,
  "src/controlPlane/schedules": 1700,
  "src/controlPlane/servers": 9096,
  "src/controlPlane/sftp": 2245,
  "src/controlPlane/store": 7268,
  "src/controlPlane/webhooks": 1099,
  "src/daemon": 1485,
  "src/daemon/access": 5294,
  "src/daemon/archives": 1824,
  "src/daemon/backups": 2790,
  "src/daemon/comparison": 600,
  "src/daemon/configPatch": 2951,
  "src/daemon/console": 1238,
  "src/daemon/disk": 1130,
  "src/daemon/files": 3904,
  "src/daemon/helper": 469,
  "src/daemon/host": 861,
  "src/daemon/install": 969,
  "src/daemon/instances": 4132,
  "src/daemon/packed": 700,
  "src/daemon/runtime": 5192,
  "src/daemon/state": 727,
  "src/daemon/uplink": 1029,
  "src/dashboard": 11574,
  "src/shared": 2499
}

/** Short files with one importer in their folder that are things of their own: commands, groups of routes, layers. */
const ownThings: ReadonlyArray<string> = [
  "src/cli/node.ts",
  "src/cli/serve.ts",
  "src/controlPlane/pages/dashboardBundle.ts",
  "src/controlPlane/store/layers/layerPostgres.ts"
]

const SHORT = 60

const files = globSync("src/**/*.{ts,tsx}", { cwd: root }).filter(
  (file) => !file.startsWith("src/client/dist/")
)
const linesOf = (file: string) => textOf(file).split("\n").length - 1
const folderOf = (file: string) =>
  dirname(file)
    .split("/")
    .slice(0, /^src\/(?:controlPlane|daemon)\//.test(file) ? 3 : 2)
    .join("/")

const importsOf = (file: string) =>
  [...textOf(file).matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map(([, path = ""]) =>
    join(dirname(file), path)
  )

describe("architecture: size", () => {
  it("no folder exceeds its budget of lines", () => {
    const lines: Record<string, number> = {}
    for (const file of files) lines[folderOf(file)] = (lines[folderOf(file)] ?? 0) + linesOf(file)
    expect(Object.keys(lines).toSorted()).toEqual(Object.keys(budgets).toSorted())
    expect(Object.entries(lines).filter(([folder, count]) => count > (budgets[folder] ?? 0))).toEqual([])
  })

  it("a short file that one file of its folder imports is a part of that file", () => {
    const tests = new Set(globSync("test/**/*.ts", { cwd: root }).flatMap(importsOf))
    const importers = new Map<string, Array<string>>()
    for (const file of files)
      for (const target of new Set(importsOf(file)))
        importers.set(target, [...(importers.get(target) ?? []), file])
    const fragments = files.filter((file) => {
      const [only, ...others] = importers.get(file) ?? []
      const isPart = only !== undefined && others.length === 0 && dirname(only) === dirname(file)
      return isPart && linesOf(file) < SHORT && !tests.has(file)
    })
    expect(fragments.toSorted()).toEqual(ownThings.toSorted())
  })
})
