import { assert, describe, it } from "@effect/vitest"
import { Effect, Queue } from "effect"
import { eventually } from "../../support/eventually.ts"
import { connectionsAre, ws } from "./clients.ts"
import { streamServer, TestServer } from "./streamServer.ts"

describe("spec 3.10: console", () => {
  it.effect("each line is one message, and each message one line", () =>
    Effect.gen(function* () {
      const { commands, lines } = yield* TestServer
      const client = yield* ws("/console")
      yield* Queue.offerAll(lines, ["one", "", "zwei \u001b[0m ü"])
      yield* eventually(() => client.messages.length === 3)
      assert.deepStrictEqual(client.messages, ["one", "", "zwei \u001b[0m ü"])
      for (const text of ["say hi", "list\n", "stop\r\n"]) client.socket.send(text)
      client.socket.send(Buffer.from("binary"))
      client.socket.send("last")
      yield* eventually(() => commands.length === 4)
      assert.deepStrictEqual(commands, ["say hi", "list", "stop", "last"])
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("after its last line, the console closes with 1000", () =>
    Effect.gen(function* () {
      const { lines } = yield* TestServer
      const client = yield* ws("/console")
      yield* Queue.offer(lines, "last")
      yield* Queue.end(lines)
      yield* eventually(() => client.closed() !== undefined)
      assert.strictEqual(client.closed(), 1000)
      assert.deepStrictEqual(client.messages, ["last"])
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.live("a client that does not keep up is closed with 1013", () =>
    Effect.gen(function* () {
      const { lines } = yield* TestServer
      const slow = yield* ws("/console")
      slow.socket.pause()
      const flood = Array.from({ length: 20 }, () => "x".repeat(10_000))
      for (let i = 0; i < 100; i++) yield* Queue.offerAll(lines, flood)
      slow.socket.resume()
      yield* eventually(() => slow.closed() !== undefined)
      assert.strictEqual(slow.closed(), 1013)
      yield* connectionsAre(0)
    }).pipe(Effect.scoped, Effect.provide(streamServer({ grace: "30 seconds" })))
  )

  it.effect("empty lines count: a client that does not read them is closed with 1013", () =>
    Effect.gen(function* () {
      const { lines } = yield* TestServer
      const client = yield* ws("/console")
      yield* Queue.offerAll(
        lines,
        Array.from({ length: 1000 }, () => "")
      )
      yield* eventually(() => client.closed() !== undefined)
      assert.strictEqual(client.closed(), 1013)
    }).pipe(Effect.scoped, Effect.provide(streamServer({ bufferBytes: 10_000, grace: "30 seconds" })))
  )
})
