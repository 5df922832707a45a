import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import WebSocket from "ws"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { makeKey, revokeKey } from "../../support/keys.ts"
import { Muster } from "../../support/Muster.ts"
import { type Service, ServiceFailed } from "../../support/Service.ts"
import {
  becomes,
  commands,
  expectStatus,
  installed,
  logsHave,
  logsOf,
  powered,
  running
} from "../../support/servers.ts"
import { definitions, down, follow, up, upAgain } from "./setup.ts"

/** Opens a WebSocket; records its messages and its close code. */
const openSocket = Effect.fnUntraced(function* ({ key, url }: Pick<Service, "key" | "url">, path: string) {
  const socket = yield* Effect.acquireRelease(
    Effect.sync(
      () =>
        new WebSocket(`${url.replace("http", "ws")}${path}`, { headers: { authorization: `Bearer ${key}` } })
    ),
    (it) => Effect.sync(() => it.terminate())
  )
  const lines: Array<string> = []
  let closed: readonly [code: number, reason: string] | undefined
  socket.on("message", (data) => lines.push(data.toString()))
  socket.on("close", (code, reason) => {
    closed = [code, reason.toString()]
  })
  yield* Effect.callback<void, ServiceFailed>((resume) => {
    socket.once("open", () => resume(Effect.void))
    socket.once("error", (error) => resume(Effect.fail(new ServiceFailed({ message: `${path}: ${error}` }))))
  })
  return { socket, lines, closed: () => closed }
})

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.10: console, logs and stats", () => {
    it.effect("commands are answered, and logs are paged with the newest line last", () =>
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
        assert.deepStrictEqual(Object.keys(json), ["meta", "data"])
        const path = `/api/servers/${id}/logs?page=2&per_page=10&include=times`
        const { times, ...others } = (yield* expectStatus(api, 200, "GET", path)).json
        assert.deepStrictEqual(others, json)
        assert.strictEqual(times.length, 10)
        for (const time of times) assert.match(time, /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
        assert.deepStrictEqual(times, [...times].sort())
        yield* expectStatus(api, 422, "GET", `/api/servers/${id}/logs?include=status`)
      })
    )

    it.effect("stats show the usage of a running server, and zeros otherwise", () =>
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

    it.effect("the console socket sends lines and accepts commands", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const { lines, socket } = yield* openSocket(api, `/api/servers/${id}/console`)
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

    it.effect("the stop command over the console socket is a stop, so that the end is no crash", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        const { socket } = yield* openSocket(api, `/api/servers/${id}/console`)
        yield* Effect.sync(() => socket.send("stop"))
        yield* eventsAre(stream, id, [...up, ...down])
      })
    )

    it.effect(
      "spec 6.1: the streams and consoles of a key end when it is revoked, and accept no more commands",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          const made = yield* makeKey(api.dataDir, "panel")
          const holder = { url: api.url, key: made.key }
          const console = yield* openSocket(holder, `/api/servers/${id}/console`)
          const socket = yield* openSocket(holder, "/api/events/ws")
          const stream = yield* subscribe(holder)
          const other = yield* subscribe(api)
          yield* revokeKey(api.dataDir, made.id)
          const all = yield* eventually(
            Effect.sync(() => [console.closed(), socket.closed(), stream.ended()] as const),
            (ends) => ends.every((end) => end !== undefined && end !== false)
          )
          const notValid = [1008, "the API key is no longer valid"] as const
          assert.deepStrictEqual(all, [notValid, notValid, true])
          assert.isFalse(other.ended())
          console.socket.send("after the end")
          yield* commands(api, id, "from another")
          yield* logsHave(api, id, "got from another")
          assert.notInclude(yield* logsOf(api, id), "got after the end")
        })
    )

    it.effect("the stream of a server has only its events", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const one = yield* installed(api, "kept")
        const other = yield* installed(api, "kept")
        const own = yield* subscribe(api, `/api/servers/${one}/events`)
        yield* powered(api, other, "start")
        yield* becomes(api, other, "running")
        yield* powered(api, one, "start")
        yield* eventsAre(own, one, upAgain)
        assert.deepStrictEqual(
          own.events().map((event) => event.Data.server_id),
          [one, one]
        )
      })
    )
  })
})
