import { readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startService } from "./support/Service.ts"

describe("SECURITY: files that a parent left open are closed", () => {
  it.live("the profile of V8 stays open: its text would go into the next file that is opened", () =>
    Effect.gen(function* () {
      const { dataDir, process, request } = yield* startService({
        env: { NODE_OPTIONS: "--perf-basic-prof" }
      })
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(`/tmp/perf-${process.pid}.map`)))
      assert.strictEqual((yield* request("GET", "/readyz")).status, 200)
      assert.strictEqual(readFileSync(join(dataDir, "muster.lock"), "utf8"), "")
      assert.isAbove(readFileSync(`/tmp/perf-${process.pid}.map`).length, 0)
    }).pipe(Effect.scoped)
  )
})
