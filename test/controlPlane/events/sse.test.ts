import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { EventHub } from "../../../src/controlPlane/events/EventHub.ts"
import { StreamShutdown } from "../../../src/controlPlane/events/OpenStreams.ts"
import { eventually } from "../../support/eventually.ts"
import { plain } from "../../support/ids.ts"
import { connectionsAre, sse, stalledConnection, subscribersAre, ws } from "./clients.ts"
import { internal, MemoryJournal, status, statuses } from "./MemoryJournal.ts"
import { streamServer } from "./streamServer.ts"

const event = (id: string, payload = "running") =>
  `event: status\ndata: {"Topic":"status","Data":{"server_id":"${id}","payload":"${payload}"}}\n\n`

describe("spec 5.3: SSE", () => {
  it.effect("the headers and a first comment are sent before any event", () =>
    Effect.gen(function* () {
      const client = yield* sse("/events", { accept: "text/event-stream" })
      assert.strictEqual(client.response.statusCode, 200)
      assert.strictEqual(client.response.headers["content-type"], "text/event-stream")
      assert.strictEqual(client.response.headers["cache-control"], "no-cache")
      assert.strictEqual(client.response.headers.connection, "keep-alive")
      assert.strictEqual(client.response.headers["x-accel-buffering"], "no")
      yield* eventually(() => client.text() === ": connected\n\n")
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("each event is exactly two lines and a blank line", () =>
    Effect.gen(function* () {
      const journal = plain(yield* MemoryJournal)
      const client = yield* sse("/events")
      yield* journal.append([status("srv_1"), internal("srv_1"), status("srv_ü\n", "offline")])
      yield* journal.append([{ topic: "deleted", server_id: "srv_1", payload: null }])
      const expected = `: connected\n\n${event("srv_1")}${event("srv_ü\\n", "offline")}event: deleted\ndata: {"Topic":"deleted","Data":{"server_id":"srv_1","payload":null}}\n\n`
      yield* eventually(() => client.text().length >= expected.length)
      assert.strictEqual(client.text(), expected)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a comment is sent every 15 s, with or without events", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* sse("/events")
      yield* eventually(() => client.text() === ": connected\n\n")
      yield* TestClock.adjust("14999 millis")
      yield* journal.append([status("a")])
      yield* eventually(() => client.text() === `: connected\n\n${event("a")}`)
      yield* TestClock.adjust("1 millis")
      yield* eventually(() => client.text() === `: connected\n\n${event("a")}: ping\n\n`)
      yield* TestClock.adjust("15 seconds")
      yield* eventually(() => client.text() === `: connected\n\n${event("a")}: ping\n\n: ping\n\n`)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("HEAD returns the headers and ends", () =>
    Effect.gen(function* () {
      const client = yield* sse("/events", {}, { method: "HEAD" })
      assert.strictEqual(client.response.statusCode, 200)
      assert.strictEqual(client.response.headers["content-type"], "text/event-stream")
      yield* eventually(() => client.ended() === "complete")
      yield* subscribersAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("the timeouts of the HTTP server do not end streams", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* sse("/events")
      const socket = yield* ws("/events/ws")
      // The server has timed out a request that began later.
      const unfinished = yield* stalledConnection("GET /events HTTP/1.1\r\n")
      unfinished.resume()
      yield* eventually(() => unfinished.readableEnded || unfinished.destroyed)
      yield* journal.append([status("a")])
      yield* eventually(
        () => client.text() === `: connected\n\n${event("a")}` && socket.messages.length === 1
      )
    }).pipe(
      Effect.scoped,
      Effect.provide(
        streamServer({
          node: {
            requestTimeout: 60,
            headersTimeout: 50,
            keepAliveTimeout: 10,
            connectionsCheckingInterval: 10
          }
        })
      )
    )
  )

  it.effect("closing the connection removes the subscription", () =>
    Effect.gen(function* () {
      const hub = yield* EventHub
      const client = yield* sse("/events")
      assert.strictEqual(yield* hub.subscribers, 1)
      yield* client.leave
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a thousand closed connections release their resources", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      yield* Effect.forEach(
        Array.from({ length: 1000 }, (_, i) => i),
        (i) =>
          Effect.gen(function* () {
            const client = yield* sse(i % 2 === 0 ? "/events" : "/events?cursor=0")
            yield* journal.append([status(`s${i}`)])
            yield* client.leave
          }).pipe(Effect.scoped),
        { concurrency: 50, discard: true }
      )
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.provide(streamServer()))
  )
})

describe("spec 5.5: resume over SSE", () => {
  it.effect("the replay and the live events that follow have id lines", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(3))
      const client = yield* sse("/events?cursor=1", { "last-event-id": "" })
      const expected = `: connected\n\nid: 2\n${event("s2")}id: 3\n${event("s3")}`
      yield* eventually(() => client.text() === expected)
      yield* journal.append([status("s4")])
      yield* eventually(() => client.text() === `${expected}id: 4\n${event("s4")}`)
      const again = yield* sse("/events?cursor=1", { "last-event-id": "3" })
      yield* eventually(() => again.text() === `: connected\n\nid: 4\n${event("s4")}`)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("every event arrives exactly once when the connection breaks at any byte during publication", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const total = 3000
      const writer = yield* Effect.forkScoped(
        Effect.forEach(statuses(total), (change) => journal.append([change]), { discard: true })
      )
      const breaks = fc.sample(fc.integer({ min: 1, max: 8000 }), { numRuns: 40, seed: 7 })
      const got: Array<string> = []
      for (const bytes of [...breaks, Number.POSITIVE_INFINITY]) {
        const client = yield* sse("/events", { "last-event-id": String(got.length) })
        const whole = () => client.text().match(/^id: \d+\nevent: status\ndata: .*\n\n/gm) ?? []
        yield* eventually(() => client.text().length >= bytes || got.length + whole().length >= total)
        yield* client.leave
        got.push(...whole())
      }
      yield* Fiber.join(writer)
      assert.deepStrictEqual(
        got,
        Array.from({ length: total }, (_, i) => `id: ${i + 1}\n${event(`s${i + 1}`)}`)
      )
      yield* subscribersAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a refusal has the error body and opens no stream", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(3))
      yield* journal.prune(3)
      for (const [path, code] of [
        ["/events?cursor=1", "410"],
        ["/events?cursor=4", "410"],
        ["/events?cursor=x", "422"],
        ["/events?topics=nope", "422"]
      ] as const) {
        const client = yield* sse(path)
        yield* eventually(() => client.ended() === "complete")
        assert.strictEqual(client.response.headers["content-type"], "application/json")
        assert.include(JSON.parse(client.text()), { code })
      }
      yield* subscribersAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})

describe("spec 5.2: order and slow clients over SSE", () => {
  it.live("200 subscribers receive 2,000 events in one order", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const clients = yield* Effect.forEach(Array.from({ length: 200 }), () => sse("/events"), {
        concurrency: 50
      })
      for (let i = 0; i < 40; i++) yield* journal.append(statuses(50, i * 50 + 1))
      const expected = `: connected\n\n${Array.from({ length: 2000 }, (_, i) => event(`s${i + 1}`)).join("")}`
      for (const client of clients) {
        yield* eventually(() => client.text().length >= expected.length)
        assert.isTrue(client.text() === expected)
      }
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("a client that reads nothing is disconnected; the others receive every event", () =>
    Effect.gen(function* () {
      const hub = yield* EventHub
      const journal = yield* MemoryJournal
      const quick = yield* sse("/events")
      const slow = yield* stalledConnection("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
      yield* subscribersAre(2)
      const id = "x".repeat(10_000)
      let count = 0
      yield* eventually(
        Effect.gen(function* () {
          yield* journal.append(Array.from({ length: 20 }, () => status(id)))
          count += 20
          return (yield* hub.subscribers) === 1
        })
      )
      yield* connectionsAre(1)
      const expected = `: connected\n\n${event(id).repeat(count)}`
      yield* eventually(() => quick.text().length >= expected.length)
      assert.isTrue(quick.text() === expected)
      assert.isFalse(slow.destroyed)
    }).pipe(Effect.scoped, Effect.provide(streamServer({ stalled: Duration.seconds(1) })))
  )

  it.live("a client that reads late receives whole events, then the end of the stream", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* sse("/events")
      client.response.pause()
      const quick = yield* sse("/events")
      let received = 0
      quick.response.on("data", (chunk: Buffer) => {
        received += chunk.length
      })
      const id = "x".repeat(10_000)
      // More than the buffers of both sides and what a subscriber may be behind.
      for (let i = 0; i < 200; i++) yield* journal.append(Array.from({ length: 20 }, () => status(id)))
      yield* eventually(() => received >= 200 * 20 * event(id).length)
      client.response.resume()
      yield* eventually(() => client.ended() !== undefined)
      assert.strictEqual(client.ended(), "complete")
      const text = client.text()
      const one = event(id)
      const whole = (text.length - ": connected\n\n".length) / one.length
      assert.isAbove(whole, 0)
      assert.isTrue(text === `: connected\n\n${one.repeat(whole)}`)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})

describe("spec 5.3: shutdown with open SSE streams", () => {
  it.live("shutdown ends open streams after a whole event", () =>
    Effect.gen(function* () {
      const shutdown = yield* StreamShutdown
      const journal = yield* MemoryJournal
      const client = yield* sse("/events")
      yield* journal.append([status("a")])
      yield* shutdown.begin
      yield* eventually(() => client.ended() !== undefined)
      assert.strictEqual(client.ended(), "complete")
      assert.strictEqual(client.text(), `: connected\n\n${event("a")}`)
      yield* subscribersAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("no heartbeat is written to a stream that has ended behind a response that is not read", () =>
    Effect.gen(function* () {
      const shutdown = yield* StreamShutdown
      const journal = yield* MemoryJournal
      const get = (query: string) => `GET /events${query} HTTP/1.1\r\nHost: localhost\r\n\r\n`
      yield* stalledConnection(get("") + get("?topics=deleted"))
      yield* subscribersAre(2)
      const id = "x".repeat(10_000)
      for (let i = 0; i < 100; i++) yield* journal.append(Array.from({ length: 20 }, () => status(id)))
      yield* shutdown.begin
      // An error of a response would end the process.
      const errors: Array<unknown> = []
      const onError = (error: unknown) => errors.push(error)
      process.prependOnceListener("uncaughtException", onError)
      yield* TestClock.adjust("15 seconds")
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      process.off("uncaughtException", onError)
      assert.deepStrictEqual(errors, [])
    }).pipe(Effect.scoped, Effect.provide(streamServer({ grace: "30 seconds" })))
  )

  it.live("releasing the server ends its streams first", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(streamServer(), scope)
      const client = yield* Effect.provideContext(sse("/events"), context)
      yield* Scope.close(scope, Exit.void)
      yield* eventually(() => client.ended() !== undefined)
      assert.strictEqual(client.ended(), "complete")
    }).pipe(Effect.scoped)
  )
})
