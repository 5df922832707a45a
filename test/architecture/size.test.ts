import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2098,
  "src/cli": 7313,
  "src/client": 1521,
  "src/contract": 7832,
  "src/controlPlane/audit": 224,
  "src/controlPlane/blueprints": 4587,
  "src/controlPlane/events": 1590,
  "src/controlPlane/files": 494,
  "src/controlPlane/http": 3342,
  "src/controlPlane/keys": 841,
  "src/controlPlane/nodes": 4166,
  "src/controlPlane/operations": 669,
  "src/controlPlane/pages": 778,
  "src/controlPlane/servers": 8228,
  "src/controlPlane/sftp": 1560,
  "src/controlPlane/store": 6254,
  "src/controlPlane/webhooks": 894,
  "src/daemon": 1086,
  "src/daemon/access": 3029,
  "src/daemon/configPatch": 2701,
  "src/daemon/console": 985,
  "src/daemon/disk": 798,
  "src/daemon/files": 3373,
  "src/daemon/helper": 219,
  "src/daemon/host": 611,
  "src/daemon/install": 719,
  "src/daemon/instances": 3409,
  "src/daemon/runtime": 4945,
  "src/daemon/state": 441,
  "src/daemon/transfer": 622,
  "src/daemon/uplink": 779,
  "src/dashboard": 8832,
  "src/shared": 1989
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
