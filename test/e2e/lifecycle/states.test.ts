import { existsSync, readFileSync } from "node:fs"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventsAre } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { mainProcess, serverProcesses } from "../../support/processes.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  installed,
  logsHave,
  powered,
  running,
  statusOf
} from "../../support/servers.ts"
import { definitions, down, fileOf, follow, up, upAgain } from "./setup.ts"

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.5: States", () => {
    it.effect("creation, installation, start and stop publish one event for each change, in order", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        yield* powered(api, id, "stop")
        yield* eventsAre(stream, id, [...up, ...down])
        assert.strictEqual(yield* statusOf(api, id), "offline")
        assert.deepStrictEqual(
          serverProcesses(api.dataDir).filter((process) => process.server === id),
          []
        )
      })
    )

    it.effect("restart stops and starts the server, also one that is not saved", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "passing")
        const before = yield* mainProcess(api.dataDir, id)
        yield* powered(api, id, "restart")
        yield* eventsAre(stream, id, [...up, ...down, ...upAgain])
        const after = yield* mainProcess(api.dataDir, id)
        assert.notStrictEqual(after?.pid, before?.pid)
        yield* powered(api, id, "kill")
        yield* eventsAre(stream, id, [...up, ...down, ...upAgain, "offline", "deleted"])
      })
    )

    it.effect("an accepted restart shows at once: a wait for running ends with the new process", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        let before = yield* mainProcess(api.dataDir, id)
        for (let round = 0; round < 5; round++) {
          yield* powered(api, id, "restart")
          // The server is restarting, or up again: neither is a reason to refuse.
          if (round % 2 === 1) yield* powered(api, id, "restart")
          yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running`)
          const after = yield* mainProcess(api.dataDir, id)
          assert.notStrictEqual(after?.pid, before?.pid)
          before = after
        }
        yield* powered(api, id, "stop")
        assert.notStrictEqual(yield* statusOf(api, id), "running")
        yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=offline`)
      })
    )

    it.effect("kill ends the server without the status stopping and without a crash", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* powered(api, id, "kill")
        yield* eventsAre(stream, id, [...up, "offline"])
      })
    )

    it.effect("a paused server makes no progress and refuses commands until it is unpaused", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* powered(api, id, "pause")
        yield* becomes(api, id, "paused")
        assert.strictEqual((yield* commands(api, id, "hello")).status, 409)
        assert.strictEqual((yield* powered(api, id, "pause")).text, "")
        const main = yield* mainProcess(api.dataDir, id)
        const state = () => /\) (\S)/.exec(readFileSync(`/proc/${main?.pid}/stat`, "utf8"))?.[1]
        yield* eventually(Effect.sync(state), (it) => it === "T")
        yield* powered(api, id, "unpause")
        yield* becomes(api, id, "running")
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, {
          body: { commands: ["hello again"] }
        })
        yield* logsHave(api, id, "got hello again")
        yield* eventsAre(stream, id, [...up, "paused", "running"])
      })
    )

    it.effect("an end without a request is a crash with its exit code or signal, then offline", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* commands(api, id, "exit 3")
        yield* eventsAre(stream, id, [...up, "crash exit code 3", "offline"])
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        yield* commands(api, id, "signal SEGV")
        yield* eventsAre(stream, id, [
          ...up,
          "crash exit code 3",
          "offline",
          ...upAgain,
          "crash signal: segmentation fault",
          "offline"
        ])
        const crashes = stream.events().flatMap((event) => (event.Topic === "crash" ? [event.Data] : []))
        const own = crashes.filter((crash) => crash.server_id === id).map((crash) => crash.payload)
        assert.deepStrictEqual(
          own.map((crash) => crash.exit_code),
          [3, 139]
        )
        for (const { timestamp } of own) assert.match(timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
      })
    )

    it.effect("exit 0 is a crash, or a stop if clean-exit says so", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const crash = yield* running(api, "kept")
        const clean = yield* running(api, "clean")
        yield* commands(api, crash, "exit 0")
        yield* commands(api, clean, "exit 0")
        yield* eventsAre(stream, crash, [...up, "crash exit code 0", "offline"])
        yield* eventsAre(stream, clean, [...up, "offline"])
      })
    )

    it.effect("without its online signal in time the server is killed: `start timed out`", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "late")
        yield* powered(api, id, "start")
        yield* eventsAre(stream, id, [
          "installing",
          "offline",
          "starting",
          "crash start timed out",
          "offline"
        ])
        assert.isUndefined(yield* mainProcess(api.dataDir, id))
      })
    )

    it.effect(
      "a server that is not saved is deleted after stop, kill and crash, never before its first run",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const stream = yield* follow(api)
          const ends = [
            ["stop", [...down, "deleted"]],
            ["kill", ["offline", "deleted"]],
            ["crash", ["crash exit code 9", "offline", "deleted"]]
          ] as const
          for (const [end, events] of ends) {
            const id = yield* installed(api, "passing")
            yield* powered(api, id, "start")
            yield* becomes(api, id, "running")
            yield* end === "crash" ? commands(api, id, "exit 9") : powered(api, id, end)
            yield* eventsAre(stream, id, [...up, ...events])
            assert.strictEqual(yield* statusOf(api, id), "gone")
            yield* eventually(
              Effect.sync(() => existsSync(fileOf(api, id, "."))),
              (there) => !there
            )
          }
        })
    )

    it.effect("after a crash the server restarts if the blueprint says so, up to the limit per hour", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "stubborn")
        const crash = ["crash exit code 5", "offline"]
        const expected = [...up]
        for (const again of [true, true, false]) {
          expected.push(...crash, ...(again ? upAgain : []))
          yield* commands(api, id, "exit 5")
          yield* eventsAre(stream, id, expected)
        }
        assert.strictEqual(yield* statusOf(api, id), "offline")
      })
    )
  })
})
