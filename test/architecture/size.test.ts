import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 371,
  "src/app": 2437,
  "src/cli": 10395,
  "src/client": 2805,
  "src/contract": 10610,
  "src/controlPlane/audit": 524,
  "src/controlPlane/backups": 2078,
  "src/controlPlane/blueprints": 5530,
  "src/controlPlane/events": 1917,
  "src/controlPlane/files": 1907,
  "src/controlPlane/http": 3720,
  "src/controlPlane/keys": 1183,
  "src/controlPlane/nodes": 4628,
  "src/controlPlane/operations": 1036,
  "src/controlPlane/pages": 1114,
  "src/controlPlane/schedules": 2337,
  "src/controlPlane/servers": 9732,
  "src/controlPlane/sftp": 2295,
  "src/controlPlane/store": 7301,
  "src/controlPlane/webhooks": 1149,
  "src/daemon": 1523,
  "src/daemon/access": 6078,
  "src/daemon/archives": 1809,
  "src/daemon/backups": 2679,
  "src/daemon/configPatch": 3001,
  "src/daemon/console": 1285,
  "src/daemon/disk": 1162,
  "src/daemon/files": 4554,
  "src/daemon/helper": 519,
  "src/daemon/host": 911,
  "src/daemon/install": 1019,
  "src/daemon/instances": 4014,
  "src/daemon/runtime": 5242,
  "src/daemon/state": 764,
  "src/daemon/uplink": 1079,
  "src/dashboard": 11789,
  "src/shared": 2384
}

/** Short files with one importer in their folder that are things of their own: commands, groups of routes, layers. */
const ownThings: ReadonlyArray<string> = [
  "src/cli/node.ts",
  "src/cli/serve.ts",
  "src/contract/api/AuditGroup.ts",
  "src/contract/api/PublicPagesGroup.ts",
  "src/contract/api/QuotasGroup.ts",
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
