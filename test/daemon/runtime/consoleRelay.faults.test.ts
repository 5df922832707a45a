import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { CONSOLE_BOUND } from "../../../src/daemon/console/consoleFiles.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { consoleBytes, newId, openDaemon, recorder } from "../support.ts"

describe("spec 9.6: daemon killed: consoles", () => {
  it.live(
    "a flood without a daemon is bounded; the next daemon adopts the server and has the end of the output",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const first = yield* daemonProcess(dataDir)
        const id = newId()
        const folder = join(dataDir, "servers", id)
        const go = (name: string) => writeFileSync(join(folder, "files", name), "")
        const waitFor = (name: string) => `while [ ! -e ${name} ]; do sleep 0.02; done`
        const invocation = `sh -c 'echo ready; ${waitFor("go")}; yes flood | head -c 300000000; echo quiet; ${waitFor("end")}; echo last words; exit 7'`
        yield* first.ask(`create ${JSON.stringify({ id, process: { invocation } })}`)
        yield* until("installed", () => stateOf(dataDir, id).status === "offline")
        yield* first.ask(`power ${id} start 30`)
        yield* until("running", () => stateOf(dataDir, id).status === "running")
        yield* first.kill
        go("go")
        let most = 0
        yield* until(
          "the flood is over",
          () => {
            most = Math.max(most, consoleBytes(folder))
            const log = join(folder, "console.log")
            return existsSync(log) && readFileSync(log).subarray(-4096).includes("quiet\n")
          },
          60
        )
        assert.isAtMost(most, 2 * CONSOLE_BOUND + 4096)

        const notes = recorder()
        const { daemon } = yield* openDaemon(dataDir, notes)
        yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(id)))
        assert.strictEqual(yield* daemon.status(id), "running")
        const { items, total } = yield* daemon.logs(id, { page: 1, per_page: 1 })
        assert.deepStrictEqual(items, ["quiet"])
        const oldest = yield* daemon.logs(id, { page: total, per_page: 1 })
        assert.match(oldest.items[0] ?? "", /^\[\d{9} bytes of output were left out here\]$/)
        go("end")
        const crash = () => notes.reports.find((report) => report.type === "crash")
        yield* until("crashed", () => crash() !== undefined)
        assert.strictEqual(crash()?.crash.exit_code, 7)
        const last = yield* daemon.logs(id, { page: 1, per_page: 3 })
        assert.deepStrictEqual(last.items, ["quiet", "last words", "[ended: exit code 7]"])
      }).pipe(Effect.scoped)
  )

  // The online signal is still in the file in the first case only.
  for (const bytes of [20_000_000, 60_000_000]) {
    it.live(
      `a server that comes online without a daemon is running for the next one, ${bytes} bytes later`,
      () =>
        Effect.gen(function* () {
          const dataDir = yield* temporaryFolder
          const first = yield* daemonProcess(dataDir)
          const id = newId()
          const folder = join(dataDir, "servers", id)
          const invocation = `sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo ready; yes more | head -c ${bytes}; echo quiet; exec sleep 300'`
          yield* first.ask(`create ${JSON.stringify({ id, process: { invocation, start_timeout: 300 } })}`)
          yield* until("installed", () => stateOf(dataDir, id).status === "offline")
          yield* first.ask(`power ${id} start 30`)
          yield* until("starting", () => stateOf(dataDir, id).status === "starting")
          yield* first.kill
          // Its start timeout is over long before the adoption.
          const state = stateOf(dataDir, id)
          const began = { ...state, run: { ...state.run, started_at: 1000 } }
          writeFileSync(join(folder, "server.json"), JSON.stringify(began))
          writeFileSync(join(folder, "files", "go"), "")
          yield* until("it is quiet", () => {
            const log = join(folder, "console.log")
            return existsSync(log) && readFileSync(log).subarray(-4096).includes("quiet\n")
          })
          assert.isTrue(existsSync(join(folder, "console.log.1")))
          const { daemon } = yield* openDaemon(dataDir, recorder())
          yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(id)))
          yield* until("running", () => stateOf(dataDir, id).status === "running")
        }).pipe(Effect.scoped)
    )
  }
})
