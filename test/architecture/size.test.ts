import { globSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The lines that the TypeScript files of a folder may have. A commit that raises one says why. */
const budgets: Record<string, number> = {
  src: 71,
  "src/app": 2247,
  "src/cli": 6238,
  "src/client": 1202,
  "src/contract": 7217,
  "src/controlPlane/audit": 238,
  "src/controlPlane/blueprints": 4848,
  "src/controlPlane/events": 1778,
  "src/controlPlane/http": 3270,
  "src/controlPlane/keys": 893,
  "src/controlPlane/nodes": 4081,
  "src/controlPlane/pages": 892,
  "src/controlPlane/servers": 8894,
  "src/controlPlane/store": 6815,
  "src/controlPlane/webhooks": 947,
  "src/daemon": 1033,
  "src/daemon/configPatch": 2876,
  "src/daemon/console": 1054,
  "src/daemon/disk": 772,
  "src/daemon/files": 3686,
  "src/daemon/helper": 238,
  "src/daemon/host": 651,
  "src/daemon/install": 764,
  "src/daemon/instances": 3511,
  "src/daemon/runtime": 5288,
  "src/daemon/state": 487,
  "src/daemon/transfer": 653,
  "src/daemon/uplink": 827,
  "src/dashboard": 7652,
  "src/shared": 2278
}

/** Short files with one importer in their folder that are things of their own: commands, groups of routes, layers. */
const ownThings: ReadonlyArray<string> = [
  "src/cli/commands.ts",
  "src/cli/completion.ts",
  "src/cli/config.ts",
  "src/cli/node.ts",
  "src/cli/serve.ts",
  "src/cli/shared/socketOfFolder.ts",
  "src/cli/software.ts",
  "src/cli/version.ts",
  "src/contract/api/AuditGroup.ts",
  "src/contract/api/PublicPagesGroup.ts",
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
