import { writeFileSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { liveFiles } from "../../src/app/reloading.ts"
import { eventually } from "../support/eventually.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

describe("reload of certificates", () => {
  it.live(
    "a change that a listener cannot apply is logged at WARN; other listeners and later changes are served",
    () => {
      const lines: Array<string> = []
      return Effect.gen(function* () {
        const path = join(yield* temporaryFolder, "cert.pem")
        writeFileSync(path, "first")
        const files = yield* liveFiles({
          names: "MUSTER_TLS_CERT",
          paths: [path],
          read: Effect.promise(() => readFile(path, "utf8"))
        })
        const got: Array<string> = []
        files.onChange(() => {
          throw new Error("no such curve")
        })
        files.onChange((value) => got.push(value))
        for (const next of ["second one", "the third one"]) {
          writeFileSync(path, next)
          yield* eventually(
            Effect.sync(() => got.at(-1)),
            (last) => last === next
          )
        }
        const warnings = lines.filter((line) => line.includes("a new value could not be applied"))
        assert.strictEqual(warnings.length, 2)
        assert.match(warnings[0] ?? "", /level=WARN .*MUSTER_TLS_CERT.*no such curve/s)
      }).pipe(
        Effect.scoped,
        Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => lines.push(line))]))
      )
    }
  )
})
