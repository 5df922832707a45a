import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { EventHub } from "../../../src/controlPlane/events/EventHub.ts"
import { StreamShutdown } from "../../../src/controlPlane/events/OpenStreams.ts"
import { MOST_FRAMES } from "../../../src/controlPlane/events/webSocketUpgrade.ts"
import { eventually } from "../../support/eventually.ts"
import { connectionsAre, handshake, stalledConnection, subscribersAre, ws } from "./clients.ts"
import { internal, MemoryJournal, status, statuses } from "./MemoryJournal.ts"
import { streamServer } from "./streamServer.ts"

const json = (id: string, cursor?: number) =>
  `{"Topic":"status","Data":{"server_id":"${id}","payload":"running"}${cursor === undefined ? "" : `,"Cursor":${cursor}`}}`

describe("spec 5.4: WebSocket", () => {
  it.effect("each message is exactly the object of section 6.1", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* ws("/events/ws")
      yield* journal.append([status("srv_1"), internal("srv_1"), status("srv_ü\n")])
      yield* eventually(() => client.messages.length === 2)
      assert.deepStrictEqual(client.messages, [json("srv_1"), json("srv_ü\\n")])
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("on a resumed stream, each message has a third key Cursor", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(2))
      const client = yield* ws("/events/ws?cursor=1")
      yield* journal.append([status("s3")])
      yield* eventually(() => client.messages.length === 2)
      assert.deepStrictEqual(client.messages, [json("s2", 2), json("s3", 3)])
      const other = yield* ws("/events/ws", { headers: { "last-event-id": "2" } })
      yield* eventually(() => other.messages.length === 1)
      assert.deepStrictEqual(other.messages, [json("s3", 3)])
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("closing the socket removes the subscription, with or without a closing handshake", () =>
    Effect.gen(function* () {
      const hub = yield* EventHub
      const polite = yield* ws("/events/ws")
      const rude = yield* ws("/events/ws")
      assert.strictEqual(yield* hub.subscribers, 2)
      polite.socket.close(1000)
      rude.socket.terminate()
      yield* eventually(() => polite.closed() !== undefined)
      assert.strictEqual(polite.closed(), 1000)
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("a thousand closed sockets release their resources", () =>
    Effect.gen(function* () {
      yield* Effect.forEach(
        Array.from({ length: 1000 }),
        (_, i) =>
          Effect.gen(function* () {
            const client = yield* ws("/events/ws")
            if (i % 2 === 0) client.socket.close()
          }).pipe(Effect.scoped),
        { concurrency: 50, discard: true }
      )
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.provide(streamServer()))
  )

  it.live("200 subscribers receive 2,000 events in one order", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const clients = yield* Effect.forEach(Array.from({ length: 200 }), () => ws("/events/ws"), {
        concurrency: 50
      })
      for (let i = 0; i < 40; i++) yield* journal.append(statuses(50, i * 50 + 1))
      const expected = Array.from({ length: 2000 }, (_, i) => json(`s${i + 1}`)).join()
      for (const client of clients) {
        yield* eventually(() => client.messages.length >= 2000)
        assert.isTrue(client.messages.join() === expected)
      }
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})

describe("spec 5.4: WebSocket keep-alive", () => {
  it.effect("the service pings every 15 s", () =>
    Effect.gen(function* () {
      const client = yield* ws("/events/ws")
      let pings = 0
      client.socket.on("ping", () => pings++)
      yield* TestClock.adjust("14999 millis")
      assert.strictEqual(pings, 0)
      yield* TestClock.adjust("1 millis")
      yield* eventually(() => pings === 1)
      yield* TestClock.adjust("15 seconds")
      yield* eventually(() => pings === 2)
      assert.isUndefined(client.closed())
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("without a pong for 30 s the connection ends", () =>
    Effect.gen(function* () {
      const client = yield* ws("/events/ws", { autoPong: false })
      let pings = 0
      client.socket.on("ping", () => pings++)
      for (const expected of [1, 2]) {
        yield* TestClock.adjust("15 seconds")
        yield* eventually(() => pings === expected)
      }
      assert.isUndefined(client.closed())
      yield* TestClock.adjust("15 seconds")
      yield* eventually(() => client.closed() !== undefined)
      assert.strictEqual(client.closed(), 1006)
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a pong within 30 s keeps the connection", () =>
    Effect.gen(function* () {
      const client = yield* ws("/events/ws", { autoPong: false })
      let pings = 0
      client.socket.on("ping", () => pings++)
      const answered = Effect.callback<void>((resume) => {
        // The server answers pings in order, so our earlier pong has been read.
        client.socket.once("pong", () => resume(Effect.void))
        client.socket.pong()
        client.socket.ping()
      })
      for (let i = 1; i <= 6; i++) {
        yield* TestClock.adjust("15 seconds")
        yield* eventually(() => pings === i)
        if (i % 2 === 0) yield* answered
      }
      assert.isUndefined(client.closed())
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})

describe("spec 5.4: frames of clients", () => {
  it.effect("frames of up to 64 KiB are ignored", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* ws("/events/ws")
      for (let i = 0; i < 20; i++) client.socket.send("x".repeat(64 * 1024))
      client.socket.send(Buffer.from([1, 2, 3]))
      yield* journal.append([status("a")])
      yield* eventually(() => client.messages.length === 1)
      client.socket.close()
      yield* eventually(() => client.closed() === 1005)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a frame over 64 KiB closes the socket with 1009", () =>
    Effect.gen(function* () {
      const client = yield* ws("/events/ws")
      const fragmented = yield* ws("/events/ws")
      client.socket.send("x".repeat(64 * 1024 + 1))
      fragmented.socket.send("x".repeat(64 * 1024), { fin: false })
      fragmented.socket.send("x", { fin: true })
      yield* eventually(() => client.closed() !== undefined && fragmented.closed() !== undefined)
      assert.strictEqual(client.closed(), 1009)
      assert.strictEqual(fragmented.closed(), 1009)
      yield* subscribersAre(0)
      yield* connectionsAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("a flood of frames ends the connection while earlier ones are processed; fewer are kept", () =>
    Effect.gen(function* () {
      const client = yield* ws("/console")
      const flooding = yield* ws("/console")
      for (let i = 0; i < MOST_FRAMES / 2; i++) client.socket.send("")
      for (let i = 0; i < 3 * MOST_FRAMES; i++) flooding.socket.send("")
      yield* eventually(() => flooding.closed() === 1006)
      assert.isUndefined(client.closed())
      yield* connectionsAre(1)
    }).pipe(Effect.scoped, Effect.provide(streamServer({ processed: Effect.never })))
  )

  it.effect("a protocol error ends its own connection only", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* ws("/events/ws")
      const broken = yield* stalledConnection(`${handshake("/events/ws")}garbage that is no frame`)
      broken.resume()
      yield* connectionsAre(1)
      yield* journal.append([status("a")])
      yield* eventually(() => client.messages.length === 1)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})

describe("spec 5.2: slow WebSocket clients", () => {
  const id = "x".repeat(10_000)
  const batch = Array.from({ length: 20 }, () => status(id))

  it.live("a slow client is closed with 1013 after whole messages", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const slow = yield* ws("/events/ws")
      const quick = yield* ws("/events/ws")
      slow.socket.pause()
      // More than the buffers of both sides and what a subscriber may be behind.
      for (let i = 0; i < 200; i++) yield* journal.append(batch)
      const count = 200 * batch.length
      yield* eventually(() => quick.messages.length === count)
      slow.socket.resume()
      yield* eventually(() => slow.closed() !== undefined)
      assert.strictEqual(slow.closed(), 1013)
      assert.isTrue(slow.messages.every((message) => message === json(id)))
      assert.isUndefined(quick.closed())
    }).pipe(Effect.scoped, Effect.provide(streamServer({ grace: "30 seconds" })))
  )

  it.live("a client that does not respond is disconnected; the others receive every event", () =>
    Effect.gen(function* () {
      const hub = yield* EventHub
      const journal = yield* MemoryJournal
      const quick = yield* ws("/events/ws")
      yield* stalledConnection(handshake("/events/ws"))
      yield* subscribersAre(2)
      let count = 0
      yield* eventually(
        Effect.gen(function* () {
          yield* journal.append(batch)
          count += batch.length
          return (yield* hub.subscribers) === 1
        })
      )
      yield* connectionsAre(1)
      yield* eventually(() => quick.messages.length === count)
      assert.isTrue(quick.messages.every((message) => message === json(id)))
    }).pipe(Effect.scoped, Effect.provide(streamServer({ pongTimeout: "1 seconds" })))
  )
})

describe("spec 5.4: shutdown with open WebSockets", () => {
  it.live("shutdown closes open sockets with 1001", () =>
    Effect.gen(function* () {
      const shutdown = yield* StreamShutdown
      const client = yield* ws("/events/ws")
      const console = yield* ws("/console")
      yield* shutdown.begin
      yield* eventually(() => client.closed() !== undefined && console.closed() !== undefined)
      assert.strictEqual(client.closed(), 1001)
      assert.strictEqual(console.closed(), 1001)
      const late = yield* ws("/events/ws")
      yield* eventually(() => late.closed() === 1001)
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("releasing the server closes its sockets and does not wait for peers that do not respond", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(streamServer(), scope)
      const client = yield* Effect.provideContext(ws("/events/ws"), context)
      yield* Effect.provideContext(stalledConnection(handshake("/events/ws")), context)
      yield* Effect.provideContext(subscribersAre(2), context)
      yield* Scope.close(scope, Exit.void)
      yield* eventually(() => client.closed() !== undefined)
      assert.strictEqual(client.closed(), 1001)
    }).pipe(Effect.scoped)
  )
})
