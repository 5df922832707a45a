import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2163,
  "src/cli": 10028,
  "src/client": 1963,
  "src/contract": 9967,
  "src/controlPlane/audit": 216,
  "src/controlPlane/backups": 1803,
  "src/controlPlane/blueprints": 4826,
  "src/controlPlane/events": 1597,
  "src/controlPlane/files": 1136,
  "src/controlPlane/http": 3458,
  "src/controlPlane/keys": 860,
  "src/controlPlane/nodes": 4265,
  "src/controlPlane/operations": 716,
  "src/controlPlane/pages": 814,
  "src/controlPlane/schedules": 1552,
  "src/controlPlane/servers": 8840,
  "src/controlPlane/sftp": 1991,
  "src/controlPlane/store": 6921,
  "src/controlPlane/webhooks": 839,
  "src/daemon": 1142,
  "src/daemon/access": 5030,
  "src/daemon/archives": 1612,
  "src/daemon/backups": 3290,
  "src/daemon/comparison": 294,
  "src/daemon/configPatch": 2683,
  "src/daemon/console": 900,
  "src/daemon/disk": 883,
  "src/daemon/files": 3764,
  "src/daemon/helper": 219,
  "src/daemon/host": 600,
  "src/daemon/install": 868,
  "src/daemon/instances": 3812,
  "src/daemon/packed": 721,
  "src/daemon/runtime": 4877,
  "src/daemon/state": 481,
  "src/daemon/uplink": 777,
  "src/dashboard": 11630,
  "src/shared": 2239
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
