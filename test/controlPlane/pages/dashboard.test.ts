import { readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDashboardFiles } from "../../../src/controlPlane/pages/dashboard.ts"

const built = resolve(import.meta.dirname, "../../../dist/dashboard")

describe("files of the dashboard", () => {
  it.effect("a service that runs from its sources serves what its bundle has", () =>
    Effect.gen(function* () {
      const files = yield* readDashboardFiles
      const texts = Object.fromEntries(files.map(({ body, name }) => [name, new TextDecoder().decode(body)]))
      const names = readdirSync(built)
      assert.includeMembers(names, ["initialTheme.js", "main.js", "style.css", "xterm.js"])
      assert.deepStrictEqual(
        texts,
        Object.fromEntries(names.map((name) => [name, readFileSync(join(built, name), "utf8")]))
      )
    })
  )

  it.effect("no file imports another, so that each is loaded with one request", () =>
    Effect.gen(function* () {
      for (const { body, name } of yield* readDashboardFiles) {
        assert.notMatch(new TextDecoder().decode(body), /\bimport\s*(?:[{*"'`]|[\w$]+\s+from)/, name)
      }
    })
  )
})
