import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2140,
  "src/cli": 9855,
  "src/client": 1970,
  "src/contract": 10059,
  "src/controlPlane/audit": 224,
  "src/controlPlane/backups": 1592,
  "src/controlPlane/blueprints": 4866,
  "src/controlPlane/events": 1617,
  "src/controlPlane/files": 1073,
  "src/controlPlane/http": 3424,
  "src/controlPlane/keys": 883,
  "src/controlPlane/nodes": 4348,
  "src/controlPlane/operations": 750,
  "src/controlPlane/pages": 817,
  "src/controlPlane/schedules": 1450,
  "src/controlPlane/servers": 8846,
  "src/controlPlane/sftp": 1995,
  "src/controlPlane/store": 7018,
  "src/controlPlane/webhooks": 849,
  "src/daemon": 1235,
  "src/daemon/access": 5044,
  "src/daemon/archives": 1574,
  "src/daemon/backups": 2540,
  "src/daemon/configPatch": 2701,
  "src/daemon/console": 988,
  "src/daemon/disk": 880,
  "src/daemon/files": 3654,
  "src/daemon/helper": 219,
  "src/daemon/host": 611,
  "src/daemon/install": 719,
  "src/daemon/instances": 3882,
  "src/daemon/runtime": 4942,
  "src/daemon/state": 477,
  "src/daemon/uplink": 779,
  "src/dashboard": 11324,
  "src/shared": 2249
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
