import { execFileSync } from "node:child_process"
import { readFileSync, rmSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startService } from "./support/Service.ts"
import { temporaryFolder } from "./support/temporaryFolder.ts"

describe("SECURITY: files that a parent left open are closed", () => {
  it.live("the profile of V8 stays open: its text would go into the next file that is opened", () =>
    Effect.gen(function* () {
      const { dataDir, process, request } = yield* startService({
        cwd: yield* temporaryFolder,
        env: { NODE_OPTIONS: "--perf-basic-prof" }
      })
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(`/tmp/perf-${process.pid}.map`)))
      assert.strictEqual((yield* request("GET", "/readyz")).status, 200)
      assert.strictEqual(readFileSync(join(dataDir, "muster.lock"), "utf8"), "")
      assert.isAbove(readFileSync(`/tmp/perf-${process.pid}.map`).length, 0)
    }).pipe(Effect.scoped)
  )

  it.effect.each([
    ["--perf-prof", /^jit-\d+\.dump$/],
    ["--ll-prof", /^isolate-\w+-\d+-v8\.log\.ll$/],
    ["--prof --logfile=my.log", /^isolate-\w+-\d+-my\.log$/],
    ["--prof --no-logfile-per-isolate", /^v8\.log$/],
    ["--prof --no-logfile-per-isolate --logfile=./my.log", /^my\.log$/]
  ] as const)("the file of %s stays open, whatever its name", ([flags, name]) =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const list = `import { readdirSync, readlinkSync } from "node:fs"
        const nameOf = (fd) => { try { return readlinkSync("/proc/self/fd/" + fd) } catch { return "" } }
        process.on("exit", () => console.log(readdirSync("/proc/self/fd").map(nameOf).join("\\n")))`
      const preload = `data:text/javascript,${encodeURIComponent(list)}`
      const main = resolve("dist/main.js")
      const output = execFileSync(
        process.execPath,
        [...flags.split(" "), "--import", preload, main, "--version"],
        {
          cwd: folder,
          encoding: "utf8"
        }
      )
      const open = output.split("\n").filter((path) => dirname(path) === folder)
      assert.isTrue(
        open.some((path) => name.test(basename(path))),
        output
      )
    })
  )
})
