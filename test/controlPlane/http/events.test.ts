import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { requestTo } from "../../support/Service.ts"
import { becomes, create, expectStatus, powered, running } from "../../support/servers.ts"
import {
  assertError,
  bearer,
  exchange,
  keysOf,
  options,
  raw,
  rawRequest,
  service,
  socket
} from "./support/http.ts"
import { newest, open, seen, ticketOf } from "./support/streams.ts"

layer(service(), options)("events", (it) => {
  describe("spec 5.3: SSE", () => {
    it.effect("the stream has the headers of the contract and begins with a comment", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* open(api, "/api/events")
        assert.strictEqual(stream.status, 200)
        assert.strictEqual(stream.headers["content-type"], "text/event-stream")
        assert.strictEqual(stream.headers["cache-control"], "no-cache")
        assert.strictEqual(stream.headers.connection, "keep-alive")
        assert.strictEqual(stream.headers["x-accel-buffering"], "no")
        assert.isString(stream.headers["x-request-id"])
        yield* seen(stream.text, ": connected\n\n")
      })
    )

    it.effect("each event is two lines; Topic equals the event name: status, crash or deleted", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* open(api, "/api/events")
        yield* seen(stream.text, ": connected\n\n")
        const id = yield* running(api, "kept")
        yield* api.request("POST", `/api/servers/${id}/commands`, { body: { commands: ["exit 3"] } })
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        yield* seen(stream.text, "event: deleted")
        yield* eventually(Effect.sync(stream.text), (text) => text.endsWith("\n\n"))
        // A comment may come at any time.
        const blocks = stream
          .text()
          .split("\n\n")
          .filter((block) => block !== "" && !block.startsWith(":"))
        const topics = blocks.map((block) => {
          const [event, data, ...rest] = block.split("\n")
          assert.deepStrictEqual(rest, [])
          const topic = event?.replace(/^event: /, "")
          const message = JSON.parse(data?.replace(/^data: /, "") ?? "")
          assert.deepStrictEqual(keysOf(message), ["Data", "Topic"])
          assert.strictEqual(message.Topic, topic)
          assert.deepStrictEqual(keysOf(message.Data), ["payload", "server_id"])
          assert.strictEqual(message.Data.server_id, id)
          if (topic === "crash") {
            assert.deepStrictEqual(keysOf(message.Data.payload), ["exit_code", "reason", "timestamp"])
            assert.strictEqual(message.Data.payload.reason, "exit code 3")
            assert.strictEqual(message.Data.payload.exit_code, 3)
            assert.match(message.Data.payload.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
          }
          return topic === "status"
            ? message.Data.payload
            : `${topic} ${topic === "deleted" ? message.Data.payload : ""}`
        })
        const expected = ["installing", "offline", "starting", "running", "crash ", "offline", "deleted null"]
        assert.deepStrictEqual(topics, expected)
      })
    )

    it.effect("closing the connection removes the subscription, and HEAD leaves none", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const subscribers = Effect.map(expectStatus(api, 200, "GET", "/metrics"), ({ text }) =>
          Number(/^muster_event_subscribers (\d+)/m.exec(text)?.[1])
        )
        yield* eventually(subscribers, (count) => count === 0)
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* subscribe(api)
            assert.strictEqual(yield* subscribers, 1)
          })
        )
        yield* eventually(subscribers, (count) => count === 0)
        const head = yield* api.request("HEAD", "/api/events")
        assert.strictEqual(head.headers.get("content-type"), "text/event-stream")
        assert.strictEqual(head.text, "")
        yield* eventually(subscribers, (count) => count === 0)
      })
    )
  })

  describe("spec 5.4: WebSocket", () => {
    it.effect("the messages equal those of SSE", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const sse = yield* open(api, "/api/events")
        yield* seen(sse.text, ": connected\n\n")
        const { messages } = yield* socket(api, "/api/events/ws")
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        yield* seen(sse.text, "event: deleted")
        yield* eventually(Effect.sync(messages), (all) => all.length === 3)
        const data = sse
          .text()
          .split("\n")
          .filter((line) => line.startsWith("data: "))
        assert.deepStrictEqual(
          messages().map((message) => `data: ${message}`),
          data
        )
      })
    )

    it.effect("a refused handshake has the error body", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const upgrade = {
          connection: "Upgrade",
          upgrade: "websocket",
          "sec-websocket-version": "13",
          "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="
        }
        const shake = (headers: Record<string, string>, path = "/api/events/ws") =>
          raw(api, rawRequest("GET", path, { ...upgrade, ...headers }))
        assertError(yield* shake({}), 401, "the Authorization header is missing")
        const auth = bearer(api)
        assertError(yield* shake(auth, "/api/events/nope"), 404)
        assertError(yield* shake(auth, "/api/events/ws?topics=x"), 422)
        assertError(yield* shake({ ...auth, "sec-websocket-version": "8" }), 426)
        assertError(yield* shake({ ...auth, "sec-websocket-key": "x" }), 422)
        assertError(yield* shake({ ...auth, connection: "close" }), 426)
        assertError(yield* shake(auth, "/api/servers/nope/console"), 404, "server not found: nope")
        assertError(
          yield* raw(api, rawRequest("GET", "/api/events/ws", auth)),
          426,
          "this path speaks WebSocket only"
        )
      })
    )
  })

  describe("spec 5.5: resume, filters, tickets", () => {
    it.effect("a cursor replays all later events with their cursors; cursor=0 replays all events", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const from = yield* newest(api)
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        const expected = ["installing", "offline", "deleted"]
        yield* eventsAre(yield* subscribe(api, `/api/events?cursor=${from}`), id, expected)
        yield* eventsAre(yield* subscribe(api, "/api/events?cursor=0"), id, expected)
        const stream = yield* open(api, "/api/events", { ...bearer(api), "last-event-id": String(from) })
        yield* seen(stream.text, '"Topic":"deleted"')
        assert.match(stream.text(), /^id: \d+$/m)
        const { messages } = yield* socket(api, `/api/events/ws?cursor=${from}`)
        yield* eventually(Effect.sync(messages), (all) => all.length === 3)
        const cursors = messages().map((message) => JSON.parse(message).Cursor)
        assert.deepStrictEqual(keysOf(JSON.parse(messages()[0] ?? "")), ["Cursor", "Data", "Topic"])
        assert.isTrue(cursors.every((cursor, i) => cursor > (cursors[i - 1] ?? from)))
      })
    )

    it.effect(
      "topics, server_id and blueprint_id filter the stream; the stream of a server has only its events",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const from = yield* newest(api)
          const one = yield* create(api, "kept")
          const other = yield* create(api, "passing")
          const own = yield* subscribe(api, `/api/servers/${one}/events?cursor=${from}&server_id=${other}`)
          yield* becomes(api, one, "offline")
          yield* becomes(api, other, "offline")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${one}`)
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${other}`)
          const all = ["installing", "offline", "deleted"]
          const at = (query: string) => subscribe(api, `/api/events?cursor=${from}&${query}`)
          for (const [query, ofOne, ofOther] of [
            ["topics=deleted", ["deleted"], ["deleted"]],
            ["topics=deleted,crash", ["deleted"], ["deleted"]],
            [`server_id=${one}`, all, []],
            [`server_id=${one}&server_id=${other}`, all, all],
            ["blueprint_id=passing", [], all],
            ["blueprint_id=passing&topics=status", [], ["installing", "offline"]]
          ] as const) {
            const stream = yield* at(query)
            yield* eventsAre(stream, one, ofOne)
            yield* eventsAre(stream, other, ofOther)
          }
          yield* eventsAre(own, one, all)
          assert.deepStrictEqual(own.of(other), [])
        })
    )

    it.effect("a ticket opens a stream, and no other route", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const bare = requestTo(api.url, "")
        const get = (path: string) => bare("GET", path, { key: null })
        assertError(yield* get("/api/events?ticket=wrong"), 401, "the ticket is unknown or has expired")
        const first = yield* ticketOf(api)
        assertError(yield* get(`/api/nodes?ticket=${first}`), 401, "the Authorization header is missing")
        const stream = yield* open(api, `/api/events?ticket=${first}`, {})
        assert.strictEqual(stream.status, 200)
        const second = yield* ticketOf(api)
        yield* socket(api, `/api/events/ws?ticket=${second}`, {})
        assertError(yield* bare("POST", "/api/events/tickets", { key: null }), 401)
      })
    )

    it.effect("the console sends lines and accepts commands", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const { ws, messages } = yield* socket(api, `/api/servers/${id}/console`)
        ws.send("hello there")
        yield* eventually(Effect.sync(messages), (all) => all.includes("got hello there"))
        ws.send("a\u001bb")
        ws.send("after")
        yield* eventually(Effect.sync(messages), (all) => all.includes("got after "))
        assert.isFalse(messages().some((line) => line.includes("\u001b")))
        yield* powered(api, id, "kill")
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
      })
    )

    it.effect("spec 1.7: streams have no request timeout, and shutdown ends them", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const received = yield* Effect.forkChild(
          exchange(api, `GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${api.key}\r\n\r\n`)
        )
        const { ws } = yield* socket(api, "/api/events/ws")
        const closed = Effect.callback<number>((resume) => {
          ws.once("close", (code) => resume(Effect.succeed(code)))
        })
        const code = yield* Effect.forkChild(closed)
        const stream = yield* open(api, "/api/events")
        yield* seen(stream.text, ": connected")
        yield* api.kill("SIGTERM")
        assert.strictEqual(api.process.exitCode, 0)
        assert.strictEqual(yield* Fiber.join(code), 1001)
        assert.match(yield* Fiber.join(received), /: connected[\s\S]*\r\n0\r\n\r\n$/)
      })
    )
  })
})
