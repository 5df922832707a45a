/** The tests of a server with a terminal at one level of isolation. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../support/eventually.ts"
import { alive } from "./support.ts"
import { echoes, opened, type Scene } from "./terminalScene.ts"

export const testTerminal = (scene: Scene) => {
  describe(`spec 3.9: terminal: true (isolation ${scene.level})`, () => {
    it.live("a process has a terminal of its own without echo, and its console has lines", () =>
      Effect.gen(function* () {
        const { console, daemon, prints, up } = yield* opened(scene)
        const id = yield* up(
          `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo "three terminals"
          stty size; echo "TERM is $TERM"; echo "by name" > /dev/tty; printf "one\\r\\ntwo\\r\\r\\n"
          stty onlcr; echo "translated"; echo ready; ${echoes}`
        )
        assert.strictEqual(
          console(id),
          "three terminals\n40 120\nTERM is dumb\nby name\none\ntwo\ntranslated\nready\n"
        )
        yield* daemon.ask(`command ${id} hello`)
        yield* prints(id, "got hello\n")
        assert.isTrue(console(id).endsWith("ready\ngot hello\n"), "the input is not echoed")
      }).pipe(Effect.scoped)
    )

    it.live("a command that the terminal would cut is refused", () =>
      Effect.gen(function* () {
        const { console, daemon, prints, up } = yield* opened(scene)
        const id = yield* up(`echo ready; while read -r line; do echo "got \${#line}"; done`)
        yield* Effect.exit(daemon.ask(`command ${id} ${"é".repeat(2048)}`))
        yield* daemon.ask(`command ${id} ${"x".repeat(4095)}`)
        yield* prints(id, "got 4095\n")
        assert.strictEqual(console(id), "ready\ngot 4095\n")
      }).pipe(Effect.scoped)
    )

    it.live("other servers cannot open the terminal", () =>
      Effect.gen(function* () {
        // Without isolation a server can open every terminal of the host.
        if (scene.level === "none") return
        const { console, up } = yield* opened(scene)
        const victim = yield* up(`echo ready; ${echoes}`)
        const other = yield* up(
          `own=$(readlink /proc/self/fd/0); echo "mine is $own"
          for file in /dev/pts/[0-9]*; do
            [ "$file" = "$own" ] || { echo attack > "$file"; } 2> /dev/null && echo "opened $file"
          done
          echo ready; ${echoes}`
        )
        assert.include(console(other), "mine is /dev/pts/")
        assert.notInclude(console(victim), "attack")
      }).pipe(Effect.scoped)
    )

    it.live("kill -9 of the daemon: console and input continue, and the exit code is known", () =>
      Effect.gen(function* () {
        const { console, exitOf, daemon, isIn, prints, serverDir, start, up } = yield* opened(scene)
        const id = yield* up(
          `echo ready; read -r line; echo "got $line"; read -r line; echo "got $line"; exit 9`
        )
        yield* daemon.kill
        const again = yield* start
        yield* again.ask(`command ${id} first`)
        yield* prints(id, "got first\n")
        const { pid, relay } = JSON.parse(readFileSync(join(serverDir(id), "run.json"), "utf8"))
        yield* again.ask(`command ${id} last`)
        yield* isIn(id)("offline")
        assert.include(console(id), "ready\ngot first\ngot last\n")
        assert.strictEqual(exitOf(id), 9)
        yield* until("nothing is left", () => !alive(pid) && !alive(relay.pid))
      }).pipe(Effect.scoped)
    )
  })
}
