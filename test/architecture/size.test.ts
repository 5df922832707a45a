import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 321,
  "src/app": 2421,
  "src/cli": 10142,
  "src/client": 2220,
  "src/contract": 10318,
  "src/controlPlane/audit": 469,
  "src/controlPlane/backups": 1949,
  "src/controlPlane/blueprints": 5109,
  "src/controlPlane/events": 1853,
  "src/controlPlane/files": 1416,
  "src/controlPlane/http": 3695,
  "src/controlPlane/keys": 1111,
  "src/controlPlane/nodes": 4597,
  "src/controlPlane/operations": 950,
  "src/controlPlane/pages": 1064,
  "src/controlPlane/schedules": 1680,
  "src/controlPlane/servers": 9075,
  "src/controlPlane/sftp": 2275,
  "src/controlPlane/store": 7191,
  "src/controlPlane/webhooks": 1092,
  "src/daemon": 1488,
  "src/daemon/access": 5300,
  "src/daemon/archives": 1828,
  "src/daemon/backups": 2936,
  "src/daemon/comparison": 558,
  "src/daemon/configPatch": 2949,
  "src/daemon/console": 1238,
  "src/daemon/disk": 1129,
  "src/daemon/files": 3931,
  "src/daemon/helper": 469,
  "src/daemon/host": 861,
  "src/daemon/install": 966,
  "src/daemon/instances": 4134,
  "src/daemon/packed": 886,
  "src/daemon/runtime": 5207,
  "src/daemon/state": 727,
  "src/daemon/uplink": 1029,
  "src/dashboard": 11615,
  "src/shared": 2480
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
