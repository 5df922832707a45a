import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { ws } from "./clients.ts"
import { MemoryJournal, status } from "./MemoryJournal.ts"
import { streamServer } from "./streamServer.ts"

/** An id with which the message of an event has that many bytes. */
const idOf = (bytes: number) =>
  "x".repeat(bytes - '{"Topic":"status","Data":{"server_id":"","payload":"running"}}'.length)

describe("spec 5.4: frames", () => {
  it.effect("a message of any length is one text frame, without compression", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const client = yield* ws("/events/ws", { perMessageDeflate: true })
      assert.strictEqual(client.socket.extensions, "")
      const lengths = [125, 126, 127, 0xffff, 0x10000, 200_000]
      yield* journal.append(lengths.map((length) => status(idOf(length))))
      yield* eventually(() => client.messages.length === lengths.length)
      assert.deepStrictEqual(
        client.messages.map((message) => Buffer.byteLength(message)),
        lengths
      )
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )

  it.effect("subscribers with and without cursors, and with other topics, receive their own messages", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      const plain = yield* ws("/events/ws")
      const other = yield* ws("/events/ws")
      const withCursors = yield* ws("/events/ws?cursor=0")
      const deletions = yield* ws("/events/ws?topics=deleted")
      yield* journal.append([status("a"), { topic: "deleted", server_id: "a", payload: null }])
      const sent = [
        '{"Topic":"status","Data":{"server_id":"a","payload":"running"}}',
        '{"Topic":"deleted","Data":{"server_id":"a","payload":null}}'
      ]
      yield* eventually(() => [plain, other, withCursors].every(({ messages }) => messages.length === 2))
      yield* eventually(() => deletions.messages.length === 1)
      assert.deepStrictEqual(plain.messages, sent)
      assert.deepStrictEqual(other.messages, sent)
      assert.deepStrictEqual(
        withCursors.messages,
        sent.map((message, i) => message.replace(/}$/, `,"Cursor":${i + 1}}`))
      )
      assert.deepStrictEqual(deletions.messages, sent.slice(1))
    }).pipe(Effect.scoped, Effect.provide(streamServer()))
  )
})
