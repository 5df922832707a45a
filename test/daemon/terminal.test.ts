import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { echoes, opened, rootScene } from "./terminalScene.ts"
import { testTerminal } from "./terminalTests.ts"

testTerminal(rootScene)

describe(`spec 3.9: terminal: true`, () => {
  it.live("the stop command ^C is the byte 3 on the terminal", () =>
    Effect.gen(function* () {
      const { console, daemon, isIn, up } = yield* opened(rootScene)
      const interrupted = yield* up(
        `trap "echo interrupted; exit 0" INT; echo ready; while :; do read -r line; done`,
        {
          stop_command: "^C"
        }
      )
      const raw = yield* up(
        `stty raw; trap "echo signalled" INT; echo ready; dd bs=1 count=1 2> /dev/null | od -An -tx1; exit 0`,
        { stop_command: "^C" }
      )
      for (const id of [interrupted, raw]) {
        yield* daemon.ask(`power ${id} stop 30`)
        yield* isIn(id)("offline")
      }
      assert.include(console(interrupted), "ready\ninterrupted\n")
      assert.include(console(raw), "ready\n 03\n")
      assert.notInclude(console(raw), "signalled")
    }).pipe(Effect.scoped)
  )

  it.live("the signal of the end is known, and the last output arrives", () =>
    Effect.gen(function* () {
      const { console, daemon, exitOf, isIn, up } = yield* opened(rootScene)
      const killed = yield* up(`echo ready; read -r go; printf "last words"; kill -SEGV $$; sleep 300`, {
        online_signal: "ready"
      })
      yield* daemon.ask(`command ${killed} go`)
      yield* isIn(killed)("offline")
      assert.strictEqual(exitOf(killed), 139)
      assert.include(console(killed), "ready\nlast words")
    }).pipe(Effect.scoped)
  )

  it.live("a server that does not read its terminal still writes", () =>
    Effect.gen(function* () {
      const { console, daemon, prints, serverDir, up } = yield* opened(rootScene)
      const id = yield* up(
        `echo ready; while [ ! -e go ]; do sleep 0.02; done; seq 100000; echo over; ${echoes}`
      )
      for (const letter of ["x", "y", "z"]) yield* daemon.ask(`command ${id} ${letter.repeat(3000)}`)
      writeFileSync(join(serverDir(id), "files", "go"), "")
      yield* prints(id, `got ${"z".repeat(3000)}\n`)
      assert.include(console(id), "\n99999\n100000\nover\n")
      for (const letter of ["x", "y"]) assert.include(console(id), `got ${letter.repeat(3000)}\n`)
    }).pipe(Effect.scoped)
  )
})
