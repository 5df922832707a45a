import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2137,
  "src/cli": 9495,
  "src/client": 1905,
  "src/contract": 9710,
  "src/controlPlane/audit": 224,
  "src/controlPlane/backups": 1178,
  "src/controlPlane/blueprints": 4630,
  "src/controlPlane/events": 1617,
  "src/controlPlane/files": 1007,
  "src/controlPlane/http": 3420,
  "src/controlPlane/keys": 883,
  "src/controlPlane/nodes": 4328,
  "src/controlPlane/operations": 736,
  "src/controlPlane/pages": 814,
  "src/controlPlane/schedules": 1437,
  "src/controlPlane/servers": 8832,
  "src/controlPlane/sftp": 1995,
  "src/controlPlane/store": 7001,
  "src/controlPlane/webhooks": 849,
  "src/daemon": 1223,
  "src/daemon/access": 5178,
  "src/daemon/archives": 767,
  "src/daemon/backups": 1779,
  "src/daemon/configPatch": 2701,
  "src/daemon/console": 985,
  "src/daemon/disk": 862,
  "src/daemon/files": 3654,
  "src/daemon/helper": 219,
  "src/daemon/host": 611,
  "src/daemon/install": 719,
  "src/daemon/instances": 3714,
  "src/daemon/runtime": 4942,
  "src/daemon/state": 464,
  "src/daemon/transfer": 642,
  "src/daemon/uplink": 779,
  "src/dashboard": 10889,
  "src/shared": 2084
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
