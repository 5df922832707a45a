/** Servers decide how many processes and open files a pass over `/proc` meets. */
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { pidsByUid, readBoundToAll } from "../../src/daemon/host/procfs.ts"
import { makeProcessTable } from "../../src/daemon/runtime/processTable.ts"
import { pause } from "../../src/shared/work/slices.ts"

/** A process that opens files and listens on all addresses, in this order; returns its pid and port. */
const listening = (...steps: ReadonlyArray<"open" | "listen">) =>
  Effect.gen(function* () {
    const program = `
      const { openSync } = require("node:fs")
      const open = () => { for (let file = 0; file < 2500; file++) openSync("/dev/null") }
      const listen = () => new Promise((done) => {
        const server = require("node:net").createServer().listen(0, "0.0.0.0", () => done(server.address().port))
      })
      const run = async () => { let port; ${steps.map((step) => `port = (await ${step}()) ?? port`).join("\n")}; console.log(port) }
      run()`
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] })),
      (started) => Effect.sync(() => started.kill("SIGKILL"))
    )
    const port = yield* Effect.callback<number>((resume) => {
      createInterface(child.stdout).once("line", (line) => resume(Effect.succeed(Number(line))))
    })
    return { pid: child.pid ?? 0, port }
  })

/** Uses up the time that slices have in this turn of the event loop. */
const useUp = Effect.andThen(
  pause,
  Effect.sync(() => {
    const end = performance.now() + 10
    while (performance.now() < end);
  })
)

describe("SECURITY, process runtime: many processes and open files", () => {
  it.live("a bounded number of open files is examined for the warning of addresses", () =>
    Effect.gen(function* () {
      const first = yield* listening("listen", "open")
      assert.deepStrictEqual(yield* readBoundToAll([first.pid]), [{ port: first.port, udp: false }])
      const last = yield* listening("open", "listen")
      assert.deepStrictEqual(yield* readBoundToAll([last.pid]), [])
      assert.deepStrictEqual(yield* readBoundToAll([last.pid, first.pid]), [])
    }).pipe(Effect.scoped)
  )

  it.live("passes over the processes of the host run in slices, between which requests are served", () =>
    Effect.gen(function* () {
      const table = makeProcessTable("many")
      const passes: ReadonlyArray<Effect.Effect<unknown>> = [
        table.members("none", undefined, 0),
        table.names,
        pidsByUid
      ]
      for (const pass of passes) {
        yield* useUp
        const fiber = yield* Effect.forkChild(pass, { startImmediately: true })
        assert.isUndefined(fiber.pollUnsafe())
        yield* Fiber.join(fiber)
      }
    })
  )
})
