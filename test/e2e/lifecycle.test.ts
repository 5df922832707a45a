import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { afterAll } from "vitest"
import WebSocket from "ws"
import { blueprintFile, obedient, softwareFile } from "../support/definitions.ts"
import { type EventStream, replay, subscribe, told } from "../support/events.ts"
import { Muster } from "../support/Muster.ts"
import { mainProcess, serverProcesses } from "../support/processes.ts"
import { eventually, type Service, ServiceFailed } from "../support/Service.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  installed,
  logsHave,
  logsOf,
  power,
  powered,
  running,
  statusOf
} from "../support/servers.ts"

const outside = mkdtempSync(join(tmpdir(), "muster-test-"))
afterAll(() => rmSync(outside, { recursive: true, force: true }))
const licence = join(outside, "licence")

const definitions = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": obedient, "world.txt": "a new world" },
      install: { script: "for n in 1 2 3 4 5; do echo step $n; done" },
      extra: { "start-timeout": 20 }
    }),
    "clean.yml": softwareFile("clean", { files: { "server.sh": obedient }, extra: { "clean-exit": "stop" } }),
    "late.yml": softwareFile("late", {
      invocation: "sh -c 'echo not yet; while read -r line; do :; done'",
      extra: { "start-timeout": 1 }
    }),
    "licensed.yml": softwareFile("licensed", {
      files: { "server.sh": obedient },
      install: { script: `echo looking for a licence\ntest -e ${licence} || exit 3\necho found it` }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false }),
    "clean.yml": blueprintFile("clean", "clean"),
    "late.yml": blueprintFile("late", "late"),
    "licensed.yml": blueprintFile("licensed", "licensed"),
    "stubborn.yml": blueprintFile("stubborn", "game", {
      server: { restart: { on_crash: true, max_per_hour: 2 } }
    })
  }
}

const up = ["installing", "offline", "starting", "running"]
const upAgain = ["starting", "running"]
const down = ["stopping", "offline"]

/** The events of one server, from its creation on. */
const follow = (api: Service): Effect.Effect<EventStream, ServiceFailed, Scope.Scope> => subscribe(api)

/** Every status event of the server as a list, from the journal. */
const pathOf = Effect.fnUntraced(function* (api: Service, id: string) {
  const metrics = yield* expectStatus(api, 200, "GET", "/metrics")
  const newest = Number(/^muster_journal_newest_cursor (\d+)/m.exec(metrics.text)?.[1])
  const events = yield* replay(api, newest)
  return events.filter((event) => event.Data.server_id === id)
})

const fileOf = (api: Service, id: string, name: string) =>
  join(api.dataDir, "node", "servers", id, "files", name)

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("decisions 3, States", () => {
    it.effect("created, installed, started, stopped: one event for each change, in order", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        yield* powered(api, id, "stop")
        yield* told(stream, id, [...up, ...down])
        assert.strictEqual(yield* statusOf(api, id), "offline")
        assert.deepStrictEqual(
          serverProcesses(api.dataDir).filter((process) => process.server === id),
          []
        )
      })
    )

    it.effect("restart stops and starts again, also a server that is not saved", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "passing")
        const before = yield* mainProcess(api.dataDir, id)
        yield* powered(api, id, "restart")
        yield* told(stream, id, [...up, ...down, ...upAgain])
        const after = yield* mainProcess(api.dataDir, id)
        assert.notStrictEqual(after?.pid, before?.pid)
        yield* powered(api, id, "kill")
        yield* told(stream, id, [...up, ...down, ...upAgain, "offline", "deleted"])
      })
    )

    it.effect("kill ends it without stopping and without a crash", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* powered(api, id, "kill")
        yield* told(stream, id, [...up, "offline"])
      })
    )

    it.effect("paused: no progress and no commands; unpaused: it goes on", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* powered(api, id, "pause")
        yield* becomes(api, id, "paused")
        assert.strictEqual((yield* commands(api, id, "hello")).status, 409)
        assert.strictEqual((yield* power(api, id, "start")).status, 409)
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
        yield* told(stream, id, [...up, "paused", "running"])
      })
    )

    it.effect("an end of its own is a crash with its exit code or signal, then offline", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        yield* commands(api, id, "exit 3")
        yield* told(stream, id, [...up, "crash exit code 3", "offline"])
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        yield* commands(api, id, "signal SEGV")
        yield* told(stream, id, [
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

    it.effect("exit 0 of its own is a crash, but a stop where clean-exit says so", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const crash = yield* running(api, "kept")
        const clean = yield* running(api, "clean")
        yield* commands(api, crash, "exit 0")
        yield* commands(api, clean, "exit 0")
        yield* told(stream, crash, [...up, "crash exit code 0", "offline"])
        yield* told(stream, clean, [...up, "offline"])
      })
    )

    it.effect("without its online signal in time it is killed: `start timed out`", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "late")
        yield* powered(api, id, "start")
        yield* told(stream, id, ["installing", "offline", "starting", "crash start timed out", "offline"])
        assert.isUndefined(yield* mainProcess(api.dataDir, id))
      })
    )

    it.effect(
      "a server that is not saved is deleted after stop, kill and crash, never before it has run",
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
            yield* told(stream, id, [...up, ...events])
            assert.strictEqual(yield* statusOf(api, id), "gone")
            yield* eventually(
              Effect.sync(() => existsSync(fileOf(api, id, "."))),
              (there) => !there
            )
          }
        })
    )

    it.effect("after a crash it starts again where the blueprint says so, so many times an hour", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "stubborn")
        const crash = ["crash exit code 5", "offline"]
        const expected = [...up]
        for (const again of [true, true, false]) {
          expected.push(...crash, ...(again ? upAgain : []))
          yield* commands(api, id, "exit 5")
          yield* told(stream, id, expected)
        }
        assert.strictEqual(yield* statusOf(api, id), "offline")
      })
    )
  })

  describe("decisions 3, POST .../power", () => {
    it.effect("already in the wanted state: 200 and no event", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "kept")
        for (const action of ["stop", "kill", "stop"]) yield* powered(api, id, action)
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        for (const action of ["start", "unpause"]) yield* powered(api, id, action)
        yield* powered(api, id, "stop")
        yield* told(stream, id, [...up, ...down])
      })
    )

    it.effect("what cannot be in the present state is 409, and what does not exist 404 or 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        for (const action of ["pause", "unpause", "restart"]) {
          const answer = yield* power(api, id, action)
          assert.deepStrictEqual([action, answer.status, answer.json?.code], [action, 409, "409"])
        }
        assert.strictEqual((yield* commands(api, id, "hello")).status, 409)
        assert.strictEqual((yield* power(api, id, "explode")).status, 422)
        assert.strictEqual((yield* power(api, id, "stop", 301)).status, 422)
        const unknown = "srv_00000000000000000000000000"
        for (const path of ["status", "stats", "logs", "install", "install/logs"]) {
          yield* expectStatus(api, 404, "GET", `/api/servers/${unknown}/${path}`)
        }
        assert.strictEqual((yield* power(api, unknown, "start")).status, 404)
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        yield* expectStatus(api, 409, "POST", `/api/servers/${id}/reinstall`)
      })
    )

    it.effect("each action is decided by the one before it, however soon it comes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        for (let round = 0; round < 10; round++) {
          yield* powered(api, id, "start")
          yield* powered(api, id, "stop")
          // The stop was accepted, so the server does not go on.
          yield* becomes(api, id, "offline")
          assert.isUndefined(yield* mainProcess(api.dataDir, id))
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          yield* powered(api, id, "stop")
          // It is either refused, or the server does run.
          const again = yield* power(api, id, "start")
          assert.include([200, 409], again.status)
          if (again.status === 200) {
            yield* becomes(api, id, "running", "5 seconds")
            yield* powered(api, id, "kill")
          }
          yield* becomes(api, id, "offline")
        }
      })
    )
  })

  describe("decisions 3, console, logs and stats", () => {
    it.effect("commands are answered, logs are paged with the newest last", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const lines = Array.from({ length: 25 }, (_, index) => `say ${index + 1}`)
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, { body: { commands: lines } })
        yield* logsHave(api, id, "got say 25")
        assert.deepStrictEqual(yield* logsOf(api, id, "page=1&per_page=10"), [
          ...lines.slice(15).map((line) => `got ${line}`)
        ])
        assert.deepStrictEqual(yield* logsOf(api, id, "page=3&per_page=10"), [
          "ready",
          ...lines.slice(0, 5).map((line) => `got ${line}`)
        ])
        const { json } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/logs?page=2&per_page=10`)
        assert.deepStrictEqual(json.meta.pagination, {
          total: 26,
          per_page: 10,
          current_page: 2,
          total_pages: 3
        })
        assert.deepStrictEqual(yield* logsOf(api, id, "size=2"), ["got say 24", "got say 25"])
      })
    )

    it.effect("stats tell of a server that runs, and are zero for one that does not", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const look = Effect.map(
          expectStatus(api, 200, "GET", `/api/servers/${id}/stats?update_disk_usage=true`),
          (answer) => answer.json
        )
        const first = yield* look
        assert.isAbove(first.memory_bytes, 0)
        assert.strictEqual(first.memory_limit_bytes, 64 * 1024 * 1024)
        assert.isAbove(first.disk_bytes, 0)
        assert.strictEqual(first.state, "running")
        yield* eventually(look, (now) => now.uptime > first.uptime)
        yield* powered(api, id, "kill")
        yield* becomes(api, id, "offline")
        const last = yield* look
        assert.deepStrictEqual(
          [last.memory_bytes, last.uptime, last.cpu_absolute, last.state],
          [0, 0, 0, "offline"]
        )
      })
    )

    it.effect("the console socket hands out lines and takes commands", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const socket = yield* Effect.acquireRelease(
          Effect.sync(
            () =>
              new WebSocket(`${api.url.replace("http", "ws")}/api/servers/${id}/console`, {
                headers: { authorization: `Bearer ${api.key}` }
              })
          ),
          (it) => Effect.sync(() => it.terminate())
        )
        const lines: Array<string> = []
        socket.on("message", (data) => lines.push(data.toString()))
        yield* Effect.callback<void, ServiceFailed>((resume) => {
          socket.once("open", () => resume(Effect.void))
          socket.once("error", (error) =>
            resume(Effect.fail(new ServiceFailed({ message: `console: ${error}` })))
          )
        })
        yield* Effect.sync(() => socket.send("over the socket"))
        yield* eventually(
          Effect.sync(() => lines),
          (seen) => seen.includes("got over the socket")
        )
        yield* commands(api, id, "over HTTP")
        yield* eventually(
          Effect.sync(() => lines),
          (seen) => seen.includes("got over HTTP")
        )
        assert.deepStrictEqual(lines, ["got over the socket", "got over HTTP"])
        const plain = yield* api.request("GET", `/api/servers/${id}/console`)
        assert.strictEqual(plain.status, 426)
      })
    )

    it.effect("the stream of one server tells of that server only", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const one = yield* installed(api, "kept")
        const other = yield* installed(api, "kept")
        const own = yield* subscribe(api, `/api/servers/${one}/events`)
        yield* powered(api, other, "start")
        yield* becomes(api, other, "running")
        yield* powered(api, one, "start")
        yield* told(own, one, upAgain)
        assert.deepStrictEqual(
          own.events().map((event) => event.Data.server_id),
          [one, one]
        )
      })
    )
  })

  describe("decisions 3, installation", () => {
    it.effect("a failed installation says why; start is 409 until a reinstall succeeds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* create(api, "licensed", { start: true })
        yield* becomes(api, id, "offline")
        const { json: failed } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install`)
        assert.deepInclude(failed, {
          phase: "failed",
          exit_code: 3,
          failure_reason: "install script exited with 3",
          entrypoint: "sh"
        })
        const logs = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs`)
        assert.include(logs.json.data, "looking for a licence")
        assert.notInclude(logs.json.data, "found it")
        const refused = yield* power(api, id, "start")
        assert.strictEqual(refused.status, 409)
        assert.include(refused.json.detail, "install script exited with 3")
        writeFileSync(licence, "")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
        yield* eventually(
          api.request("GET", `/api/servers/${id}/install`),
          (answer) => answer.json.phase === "ready"
        )
        // It was to be started once installed, and now it is.
        yield* becomes(api, id, "running")
        yield* told(stream, id, ["installing", "offline", "installing", "offline", ...upAgain])
        const again = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${id}/install/logs?per_page=2&page=1`
        )
        assert.deepStrictEqual(again.json.data, ["looking for a licence", "found it"])
      })
    )

    it.effect("install logs are paged, oldest first", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const page = (query: string) =>
          Effect.map(
            expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs?${query}`),
            (it) => it.json
          )
        assert.deepStrictEqual((yield* page("")).data, ["step 1", "step 2", "step 3", "step 4", "step 5"])
        assert.deepStrictEqual(yield* page("page=2&per_page=2"), {
          meta: { pagination: { total: 5, per_page: 2, current_page: 2, total_pages: 3 } },
          data: ["step 3", "step 4"]
        })
      })
    )

    it.effect("reset stops it and puts its files back", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        writeFileSync(fileOf(api, id, "world.txt"), "griefed")
        writeFileSync(fileOf(api, id, "extra.txt"), "more")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reset`)
        yield* told(stream, id, [...up, ...down])
        yield* eventually(
          Effect.sync(() => readFileSync(fileOf(api, id, "world.txt"), "utf8")),
          (text) => text === "a new world\n"
        )
        assert.isFalse(existsSync(fileOf(api, id, "extra.txt")))
        yield* eventually(power(api, id, "start"), (answer) => answer.status === 200)
        yield* becomes(api, id, "running")
      })
    )

    it.effect("reinstall of a saved server keeps its own files", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "kept")
        writeFileSync(fileOf(api, id, "world.txt"), "griefed")
        writeFileSync(fileOf(api, id, "extra.txt"), "more")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
        yield* told(stream, id, ["installing", "offline", "installing", "offline"])
        assert.strictEqual(readFileSync(fileOf(api, id, "world.txt"), "utf8"), "a new world\n")
        assert.strictEqual(readFileSync(fileOf(api, id, "extra.txt"), "utf8"), "more")
      })
    )
  })

  describe("decisions 3, DELETE", () => {
    it.effect("a server that runs is ended and gone, files and ports with it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        const node = Effect.map(expectStatus(api, 200, "GET", "/api/nodes?ids_only=true"), (it) => it.json[0])
        const free = Effect.map(
          expectStatus(api, 200, "GET", `/api/nodes/${yield* node}`),
          (answer) => answer.json.ports_free
        )
        const before = yield* free
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        assert.strictEqual(yield* statusOf(api, id), "gone")
        assert.strictEqual(yield* free, before + 1)
        assert.isUndefined(yield* mainProcess(api.dataDir, id))
        assert.isFalse(existsSync(fileOf(api, id, ".")))
        yield* eventually(
          Effect.sync(() => stream.of(id).at(-1)),
          (last) => last === "deleted"
        )
        assert.notInclude(stream.of(id), "crash signal: killed")
        assert.strictEqual((yield* pathOf(api, id)).at(-1)?.Topic, "deleted")
        yield* expectStatus(api, 404, "DELETE", `/api/servers/${id}`)
      })
    )
  })
})
