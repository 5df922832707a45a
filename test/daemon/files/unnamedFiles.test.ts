import { spawn } from "node:child_process"
import { copyFileSync, existsSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { unnamedFiles } from "../../../src/daemon/files/diskUsage.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

/** Runs a script that makes the file `ready`; returns its pid. */
const running = Effect.fnUntraced(function* (cwd: string, script: string) {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => spawn("sh", ["-c", script], { cwd, stdio: "ignore", detached: true })),
    ({ pid }) => Effect.sync(() => process.kill(-(pid ?? 0), "SIGKILL"))
  )
  yield* until("ready", () => existsSync(join(cwd, "ready")))
  return child.pid ?? 0
})

describe("spec 4.10: limits: disk_space counts files without a name", () => {
  const measured = Effect.fnUntraced(function* (script: string) {
    const cwd = yield* temporaryFolder
    copyFileSync("/bin/sleep", join(cwd, "program"))
    const pid = yield* running(cwd, script)
    const on = (device: number) => unnamedFiles([pid], new Set([device]))
    const { dev } = statSync(cwd)
    return { found: yield* on(dev), elsewhere: yield* on(dev + 1) }
  })

  it.live("each counts once, if it is on the device", () =>
    Effect.gen(function* () {
      const { elsewhere, found } = yield* measured(
        "exec 3> big 4> big 5> kept; head -c 1000000 /dev/zero >&3; rm big; > ready; exec sleep 60"
      )
      assert.deepInclude(found, { entries: 1, unmeasured: undefined })
      assert.isAtLeast(found.bytes, 1_000_000)
      assert.deepInclude(elsewhere, { entries: 0, bytes: 0 })
    }).pipe(Effect.scoped)
  )

  it.live.runIf(process.geteuid?.() === 0)("one that is mapped counts, although it is not open", () =>
    Effect.gen(function* () {
      // The shell becomes the program, whose name another process removes.
      const { found } = yield* measured(
        "sh -c 'while [ ! -e started ]; do sleep 0.01; done; sleep 0.1; rm program; > ready' & > started; exec ./program 60"
      )
      assert.strictEqual(found.entries, 1)
      assert.isAtLeast(found.bytes, 10_000)
    }).pipe(Effect.scoped)
  )

  it.live("a process that has ended has none", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* unnamedFiles([2 ** 22], new Set([1])), {
        bytes: 0,
        entries: 0,
        unmeasured: undefined
      })
    })
  )
})
