import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2421,
  "src/cli": 10107,
  "src/client": 2213,
  "src/contract": 10262,
  "src/controlPlane/audit": 469,
  "src/controlPlane/backups": 1959,
  "src/controlPlane/blueprints": 5085,
  "src/controlPlane/events": 1853,
  "src/controlPlane/files": 1400,
  "src/controlPlane/http": 3710,
  "src/controlPlane/keys": 1111,
  "src/controlPlane/nodes": 4552,
  "src/controlPlane/operations": 954,
  "src/controlPlane/pages": 1064,
  "src/controlPlane/schedules": 1680,
  "src/controlPlane/servers": 9073,
  "src/controlPlane/sftp": 2239,
  "src/controlPlane/store": 7189,
  "src/controlPlane/webhooks": 1092,
  "src/daemon": 1466,
  "src/daemon/access": 5283,
  "src/daemon/archives": 1837,
  "src/daemon/backups": 3108,
  "src/daemon/comparison": 542,
  "src/daemon/configPatch": 2949,
  "src/daemon/console": 1238,
  "src/daemon/disk": 1132,
  "src/daemon/files": 3928,
  "src/daemon/helper": 469,
  "src/daemon/host": 860,
  "src/daemon/install": 966,
  "src/daemon/instances": 4164,
  "src/daemon/packed": 967,
  "src/daemon/runtime": 5197,
  "src/daemon/state": 727,
  "src/daemon/uplink": 1029,
  "src/dashboard": 11621,
  "src/shared": 2501
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
