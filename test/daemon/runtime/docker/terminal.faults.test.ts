import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../../../src/contract/domain/Id.ts"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { harness } from "../../support.ts"
import { bench, consoleOf, newNode, openRuntime } from "./support.ts"

const echoes = 'while read -r line; do [ "$line" = stop ] && exit 7; echo "got $line"; done'
const terminal = { terminal: true } as const

describe.runIf(withEngine)(`spec 3.9: terminal: true, Docker${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect("a container has a terminal without echo, and its console has lines", () =>
      Effect.gen(function* () {
        const { start } = yield* bench()
        // Longer than an entry of the engine's log.
        const long = "head -c 40000 /dev/zero | tr '\\0' x; echo; head -c 16384 /dev/zero | tr '\\0' y; echo"
        const script = `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo "three terminals"
          echo "TERM is $TERM"; echo "by name" > /dev/tty; printf "one\\r\\ntwo\\r\\r\\n"; ${long}
          echo ready; read -r line; echo "got $line"; stty size; ${echoes}`
        const { launch, run } = yield* start(script, terminal)
        yield* until("it is ready", () => consoleOf(launch).includes("ready\n"))
        yield* run.write("hello")
        yield* until("the answer", () => consoleOf(launch).includes("got hello\n"))
        yield* run.write("stop")
        assert.strictEqual((yield* run.ended).code, 7)
        const texts = ["x".repeat(40_000), "y".repeat(16_384)]
        assert.deepStrictEqual(consoleOf(launch).split("\n"), [
          ...["three terminals", "TERM is dumb", "by name", "one", "two", ...texts, "ready"],
          ...["got hello", "40 120", ""]
        ])
      })
    )

    it.effect("after a restart of the daemon, console and input continue", () =>
      Effect.gen(function* () {
        const { close, node, start } = yield* bench()
        const { launch, run } = yield* start(`echo ready; ${echoes}`, terminal)
        yield* run.write("before")
        yield* until("the answer", () => consoleOf(launch).includes("got before\n"))
        yield* close
        const { runtime } = yield* openRuntime(node)
        const adopted = yield* runtime.adopt(launch)
        if (adopted._tag !== "Running") return assert.fail("it is not adopted")
        yield* adopted.run.write("after")
        yield* until("the answer", () => consoleOf(launch).includes("got after\n"))
        yield* adopted.run.interrupt ?? Effect.die("it has no terminal")
        assert.strictEqual((yield* adopted.run.ended).code, 130)
        assert.strictEqual(consoleOf(launch), "ready\ngot before\ngot after\n")
      })
    )

    it.effect("a program that is not in the image is refused with its PATH, and is no crash", () =>
      Effect.gen(function* () {
        const { socket } = yield* TestEngine
        const { crashes, daemon, installed, lastStatus } = yield* harness({
          node_id: newNode(),
          docker: { socket, pull: "never" }
        })
        const definition = { image: TEST_IMAGE, runtimes: ["docker"] as const }
        for (const terminal of [false, true]) {
          const process = { terminal, invocation: "no-such-program --x" }
          const id = yield* installed({ definition, allocations: { mappings: {} }, process })
          yield* daemon.power(id, "start", 30)
          yield* until(`${id} is offline`, () => lastStatus(id) === "offline")
          assert.deepStrictEqual(crashes(id), [])
          const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
          assert.match(
            items.at(-1) ?? "",
            /^\[cannot be started: the program no-such-program is not in PATH \(\/.*\/bin.*\)\]$/
          )
        }
      }).pipe(Effect.scoped)
    )

    it.effect("the stop command ^C is the byte 3, followed by SIGINT if the server still runs", () =>
      Effect.gen(function* () {
        const { socket } = yield* TestEngine
        const { daemon, lastStatus, running } = yield* harness({
          node_id: newNode(),
          docker: { socket, pull: "never" }
        })
        const definition = { image: TEST_IMAGE, runtimes: ["docker"] as const }
        const allocations = { mappings: {} }
        const process = { terminal: true, stop_command: "^C" }
        const up = (script: string) =>
          running({ definition, allocations, process: { ...process, invocation: `sh -c '${script}'` } })
        const raw = yield* up(`stty raw; echo ready; head -c 1 | od -An -tx1; exit 0`)
        const late = yield* up(
          `stty -isig; trap "echo signalled; exit 0" INT; echo ready; while :; do read -r line; done`
        )
        for (const id of [raw, late]) yield* daemon.power(id, "stop", 300)
        for (const id of [raw, late]) yield* until(`${id} is offline`, () => lastStatus(id) === "offline")
        const textOf = (id: ServerId) =>
          Effect.map(daemon.logs(id, { page: 1, per_page: 10 }), ({ items }) => items.join("\n"))
        assert.include(yield* textOf(raw), " 03")
        assert.include(yield* textOf(late), "signalled")
      }).pipe(Effect.scoped)
    )
  })
})
