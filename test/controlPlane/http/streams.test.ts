import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { WebSocket } from "ws"
import { muster } from "../../support/command.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, create, expectStatus, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { assertError, bearer, keysOf, options, service, socket } from "./support/http.ts"
import { newest, open, seen, ticketOf } from "./support/streams.ts"

const remove = (api: Service, id: string) => expectStatus(api, 200, "DELETE", `/api/servers/${id}`)

/** Creates a server, waits for its installation and deletes it. */
const passing = Effect.fnUntraced(function* (api: Service) {
  const id = yield* create(api, "kept")
  yield* becomes(api, id, "offline")
  yield* remove(api, id)
  return id
})

const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

describe("spec 5.5: a ticket outlives its service", () => {
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    it.live(`after ${signal} and a start, the ticket of an open stream opens the stream again`, () =>
      Effect.gen(function* () {
        const settings = {
          dataDir: join(yield* temporaryFolder, "data"),
          env: { MUSTER_EMBEDDED_NODE: "false" }
        }
        const before = yield* startService(settings)
        const path = `/api/events?ticket=${yield* ticketOf(before)}&cursor=now`
        const stream = yield* subscribe(before, path, { key: null })
        yield* before.kill(signal)
        yield* eventually(Effect.sync(stream.ended))
        const after = yield* startService(settings)
        const again = yield* subscribe(after, path, { key: null })
        assert.isFalse(again.ended())
      }).pipe(Effect.scoped)
    )
  }
})

layer(service(), options)("streams", (it) => {
  describe("spec 5.5: cursor=now", () => {
    it.effect("an SSE stream begins with the current position as its id, and each event has an id", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* passing(api)
        const position = yield* newest(api)
        const stream = yield* open(api, "/api/events?cursor=now")
        const start = `: connected\n\nid: ${position}\n\n`
        yield* seen(stream.text, start)
        assert.strictEqual(stream.text(), start)
        const id = yield* passing(api)
        yield* seen(stream.text, '"Topic":"deleted"')
        const blocks = stream.text().slice(start.length).trimEnd().split("\n\n")
        const cursors = blocks.map((block) => Number(/^id: (\d+)\nevent: /.exec(block)?.[1]))
        assert.strictEqual(blocks.length, 3)
        assert.isTrue(cursors.every((cursor, i) => cursor > (cursors[i - 1] ?? position)))
        // A client that has only the first id misses no event.
        const again = yield* subscribe(api, `/api/events?cursor=${position}`)
        yield* eventsAre(again, id, ["installing", "offline", "deleted"])
      })
    )

    it.effect("each WebSocket message has a Cursor, and no earlier event is replayed", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* passing(api)
        const position = yield* newest(api)
        const { messages } = yield* socket(api, "/api/events/ws?cursor=now")
        const id = yield* passing(api)
        const all = yield* eventually(Effect.sync(messages), (some) => some.length === 3)
        for (const message of all.map((text) => JSON.parse(text))) {
          assert.deepStrictEqual(keysOf(message), ["Cursor", "Data", "Topic"])
          assert.strictEqual(message.Data.server_id, id)
          assert.isAbove(message.Cursor, position)
        }
      })
    )

    it.effect("the stream of one server accepts it, too; Last-Event-ID takes precedence", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const position = yield* newest(api)
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        const path = `/api/servers/${id}/events?cursor=now`
        const stream = yield* subscribe(api, path)
        const resumed = yield* open(api, path, { ...bearer(api), "last-event-id": String(position) })
        yield* seen(resumed.text, '"payload":"offline"')
        assert.match(resumed.text(), /^: connected\n\nid: \d+\nevent: status\n.*"installing"/)
        yield* remove(api, id)
        yield* eventsAre(stream, id, ["deleted"])
        assert.isNumber(stream.events()[0]?.Cursor)
      })
    )
  })

  describe("spec 5.5: include=server,time", () => {
    it.effect("Data also has the summary of the server and the time of the commit, on all three routes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const from = yield* newest(api)
        const query = `cursor=${from}&include=server,time`
        const began = Date.now()
        const sse = yield* subscribe(api, `/api/events?${query}`)
        const { messages } = yield* socket(api, `/api/events/ws?${query}`)
        const id = yield* create(api, "kept", { overrides: { limits: { memory_limit: 321 } } })
        const own = yield* subscribe(api, `/api/servers/${id}/events?${query}`)
        yield* becomes(api, id, "offline")
        const { json: summary } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)
        assert.deepStrictEqual(summary.overrides, { limits: { memory_limit: 321 } })
        yield* remove(api, id)
        for (const stream of [sse, own]) yield* eventsAre(stream, id, ["installing", "offline", "deleted"])
        yield* eventually(Effect.sync(messages), (all) => all.length === 3)
        for (const lines of [sse.text().split("\n"), own.text().split("\n"), messages()]) {
          for (const { Data } of lines.map((line) => JSON.parse(line))) {
            assert.deepStrictEqual(Object.keys(Data), ["server_id", "payload", "server", "time"])
            assert.deepStrictEqual(Data.server, summary)
            assert.match(Data.time, rfc3339)
            assert.isAtLeast(Date.parse(Data.time), began)
            assert.isAtMost(Date.parse(Data.time), Date.now())
          }
        }
      })
    )

    it.effect("a replay has the last summary of a server that was deleted a short time ago", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const from = yield* newest(api)
        const id = yield* passing(api)
        const stream = yield* subscribe(api, `/api/events?cursor=${from}&include=server`)
        yield* eventsAre(stream, id, ["installing", "offline", "deleted"])
        for (const { Data } of stream.events()) {
          assert.strictEqual(Data.server?.id, id)
          assert.isUndefined(Data.time)
        }
      })
    )

    it.effect(
      "without include, the messages beside such a stream are those of the contract, byte for byte",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const plain = yield* open(api, "/api/events")
          const both = yield* subscribe(api, "/api/events?include=time,server&topics=install,status,deleted")
          yield* seen(plain.text, ": connected\n\n")
          const id = yield* passing(api)
          yield* eventually(Effect.sync(both.text), (text) => text.includes('"Topic":"deleted"'))
          yield* seen(plain.text, '"Topic":"deleted"')
          const event = (topic: string, payload: string) =>
            `event: ${topic}\ndata: {"Topic":"${topic}","Data":{"server_id":"${id}","payload":${payload}}}\n\n`
          assert.strictEqual(
            plain.text(),
            `: connected\n\n${event("status", '"installing"')}${event("status", '"offline"')}${event("deleted", "null")}`
          )
        })
    )

    it.effect("an unknown field is 422 that names the allowed ones", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        for (const path of ["/api/events", "/api/events/ws", `/api/servers/${id}/events`]) {
          assertError(
            yield* api.request("GET", `${path}?include=server,status`),
            422,
            'query field include: expected server, time, got "status"'
          )
        }
        yield* remove(api, id)
      })
    )
  })

  describe("spec 3.11: the opt-in topics stats and expiring", () => {
    it.effect("stats has the figures of GET .../stats, live, at each interval, over SSE and WebSocket", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const query = `topics=stats,status&interval=1&server_id=${id}&cursor=now&include=time,server`
        const sse = yield* subscribe(api, `/api/events?${query}`)
        const own = yield* subscribe(api, `/api/servers/${id}/events?topics=stats&interval=1`)
        const ticket = yield* ticketOf(api)
        const { messages } = yield* socket(api, `/api/events/ws?ticket=${ticket}&${query}`)
        const others = yield* subscribe(api, `/api/events?blueprint_id=passing&topics=stats&interval=1`)
        const plain = yield* subscribe(api, "/api/events")
        const isStats = (text: string) => text.startsWith('{"Topic":"stats"')
        yield* eventually(Effect.sync(messages), (all) => all.filter(isStats).length >= 2)
        yield* eventually(Effect.sync(sse.events), (all) => all.length >= 2)
        yield* eventually(Effect.sync(own.events), (all) => all.length >= 2)
        const { json: figures } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/stats`)
        const all = [...messages(), ...sse.text().split("\n")].map((text) => JSON.parse(text))
        for (const { Cursor, Data, Topic } of all) {
          assert.strictEqual(Topic, "stats")
          assert.isUndefined(Cursor)
          assert.deepStrictEqual(Object.keys(Data.payload), Object.keys(figures))
          assert.strictEqual(Data.payload.state, "running")
          assert.strictEqual(Data.server.id, id)
          assert.match(Data.time, rfc3339)
        }
        assert.isUndefined(sse.events()[0]?.Cursor)
        yield* remove(api, id)
        yield* eventually(
          Effect.sync(() => plain.of(id)),
          (events) => events.at(-1) === "deleted"
        )
        assert.deepStrictEqual(others.events(), [])
        assert.isFalse(plain.text().includes("stats"))
      })
    )

    it.effect("interval without the topic is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/api/events?interval=5", "/api/events?topics=install&interval=5"]) {
          assertError(
            yield* api.request("GET", path),
            422,
            "query field interval: only the topic stats has an interval"
          )
        }
      })
    )

    it.effect("expiring is announced once for each expiry, 60 s before it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const from = yield* newest(api)
        const stream = yield* subscribe(api, `/api/events?topics=expiring,deleted&cursor=${from}`)
        const later = yield* create(api, "kept", { expires_in: 3600 })
        const id = yield* create(api, "kept", { expires_in: 50 })
        const expiry = Effect.map(
          expectStatus(api, 200, "GET", `/api/servers/${id}?include=expires_at`),
          ({ json }) => `expiring {"expires_at":"${json.expires_at}"}`
        )
        const first = yield* expiry
        yield* eventsAre(stream, id, [first])
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { name: "other" } })
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { expires_in: 40 } })
        const second = yield* expiry
        assert.notStrictEqual(second, first)
        yield* eventsAre(stream, id, [first, second])
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${later}`, { body: { expires_in: 59 } })
        yield* eventually(
          Effect.sync(() => stream.of(later)),
          (events) => events.length === 1
        )
        for (const server of [id, later]) yield* remove(api, server)
        const replayed = yield* subscribe(api, `/api/events?topics=expiring,deleted&cursor=${from}`)
        yield* eventsAre(replayed, id, [first, second, "deleted"])
        assert.isTrue(replayed.events().every(({ Cursor }) => Cursor !== undefined))
      })
    )
  })

  describe("spec 3.11: the opt-in topic install", () => {
    it.effect("the stream has the phases of an installation only if topics names install", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        // The base is there.
        yield* passing(api)
        const from = yield* newest(api)
        const named = yield* subscribe(api, "/api/events?topics=install,deleted")
        const { messages } = yield* socket(api, "/api/events/ws?topics=install")
        const others = yield* subscribe(api, "/api/events")
        const id = yield* passing(api)
        const phases = ["install installing", "install installing instance", "install ready"]
        yield* eventsAre(named, id, [...phases, "deleted"])
        yield* eventsAre(others, id, ["installing", "offline", "deleted"])
        yield* eventually(Effect.sync(messages), (all) => all.length === 3)
        assert.strictEqual(
          messages()[2],
          `{"Topic":"install","Data":{"server_id":"${id}","payload":{"phase":"ready"}}}`
        )
        const replayed = yield* subscribe(api, `/api/events?cursor=${from}&topics=install`)
        yield* eventsAre(replayed, id, phases)
        const all = yield* subscribe(api, `/api/events?cursor=${from}`)
        yield* eventsAre(all, id, ["installing", "offline", "deleted"])
      })
    )
  })

  describe("spec 5.5: a ticket is valid for reconnects of its own stream", () => {
    it.effect("EventSource resumes with the same address: no event is missing or repeated", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const path = `/api/events?ticket=${yield* ticketOf(api)}&cursor=now&topics=status,deleted`
        const id = yield* Effect.scoped(
          Effect.gen(function* () {
            const stream = yield* open(api, path, {})
            yield* seen(stream.text, "\nid: ")
            const made = yield* create(api, "kept")
            yield* seen(stream.text, '"installing"')
            return { made, last: /[\s\S]*^id: (\d+)$/m.exec(stream.text())?.[1] ?? "" }
          })
        )
        yield* becomes(api, id.made, "offline")
        yield* remove(api, id.made)
        const again = yield* open(api, path, { "last-event-id": id.last })
        assert.strictEqual(again.status, 200)
        yield* seen(again.text, '"Topic":"deleted"')
        const topics = [...again.text().matchAll(/^event: (.*)$/gm)].map(([, topic]) => topic)
        assert.deepStrictEqual(topics, ["status", "deleted"])
      })
    )

    it.effect("the order of the filters does not matter; another filter, field or route is 401", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        const at = (route: string, query: string) => `${route}?ticket=${ticket}&${query}`
        const query = "topics=status,crash&server_id=a&server_id=b&include=time"
        const ticket = yield* ticketOf(api)
        assert.strictEqual((yield* open(api, at("/api/events", query), {})).status, 200)
        for (const path of [
          at("/api/events", "topics=status&server_id=a&server_id=b&include=time"),
          at("/api/events", "topics=status,crash&server_id=a&include=time"),
          at("/api/events", query.replace("time", "server")),
          at("/api/events", ""),
          at(`/api/servers/${id}/events`, query)
        ]) {
          const refused = yield* api.request("GET", path, { key: null })
          assertError(refused, 401, "the ticket has expired, or is for another stream or for a later cursor")
          assert.strictEqual(refused.headers.get("www-authenticate"), "Bearer")
        }
        const other = "include=time&server_id=b&server_id=a&topics=crash&topics=status"
        assert.strictEqual((yield* open(api, at("/api/events", other), {})).status, 200)
        yield* remove(api, id)
      })
    )

    it.effect("a cursor before the start of the stream is 401; one at the start or after it resumes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* passing(api)
        const start = yield* newest(api)
        const ticket = yield* ticketOf(api)
        const at = (cursor: number | string) => open(api, `/api/events?ticket=${ticket}&cursor=${cursor}`, {})
        const first = yield* at(start)
        assert.strictEqual(first.status, 200)
        for (const cursor of [start - 1, 0]) assert.strictEqual((yield* at(cursor)).status, 401)
        for (const cursor of [start, "now"]) assert.strictEqual((yield* at(cursor)).status, 200)
      })
    )

    it.effect("a reconnect ends the earlier connection: SSE ends, WebSocket closes with 4001", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const closed = (ws: WebSocket) =>
          Effect.callback<number>((resume) => {
            ws.once("close", (code) => resume(Effect.succeed(code)))
          })
        const path = `?ticket=${yield* ticketOf(api)}`
        const sse = yield* subscribe(api, `/api/events${path}`, { key: null })
        // The other transport is another connection of the same stream.
        const first = yield* socket(api, `/api/events/ws${path}`, {})
        yield* eventually(Effect.sync(sse.ended))
        const code = yield* Effect.forkChild(closed(first.ws))
        const second = yield* socket(api, `/api/events/ws${path}`, {})
        assert.strictEqual(yield* Fiber.join(code), 4001)
        const id = yield* passing(api)
        yield* eventually(Effect.sync(second.messages), (all) => all.length === 3)
        assert.isTrue(second.messages().every((message) => message.includes(id)))
        assert.deepStrictEqual(first.messages(), [])
      })
    )

    it.effect("the same holds for the console of a server", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const other = yield* create(api, "kept")
        const ticket = yield* ticketOf(api)
        const console = (server: string) => socket(api, `/api/servers/${server}/console?ticket=${ticket}`, {})
        const first = yield* console(id)
        const isClosed = Effect.sync(() => first.ws.readyState === first.ws.CLOSED)
        assert.strictEqual(yield* Effect.flip(console(other)), 401)
        assert.isFalse(yield* isClosed)
        const second = yield* console(id)
        yield* eventually(isClosed)
        second.ws.send("hello")
        yield* eventually(Effect.sync(second.messages), (all) => all.includes("got hello "))
        for (const server of [id, other]) {
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}?force=true`)
        }
      })
    )

    it.effect("a ticket whose key is revoked opens no stream again", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const env = { MUSTER_DATA_DIR: api.dataDir }
        const key = (yield* muster(["keys", "create", "--name", "panel"], env)).stdout.trim()
        const { json } = yield* expectStatus(api, 201, "POST", "/api/events/tickets", { key })
        const path = `/api/events?ticket=${json.ticket}`
        const stream = yield* subscribe(api, path, { key: null })
        const keys = JSON.parse((yield* muster(["keys", "list", "--json"], env)).stdout)
        const record = keys.find(({ name }: { readonly name: string }) => name === "panel")
        yield* muster(["keys", "revoke", record.id], env)
        yield* eventually(Effect.sync(stream.ended))
        assertError(
          yield* api.request("GET", path, { key: null }),
          401,
          "the ticket is unknown or has expired"
        )
      })
    )
  })
})
