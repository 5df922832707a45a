import { Writable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { Outbox } from "../../src/events/Outbox.ts"
import { writeReplay } from "../../src/events/writeOutbox.ts"

describe("the replay to a peer", () => {
  it.effect("nothing is written after the connection is closed", () =>
    Effect.gen(function* () {
      const written: Array<string> = []
      const connection = new Writable({
        write: (chunk, _, done) => {
          written.push(String(chunk))
          done()
        }
      })
      const peer = {
        connection,
        isOpen: () => written.length < 2,
        bytesOf: (batch: ReadonlyArray<string>) => Buffer.from(batch.join(""))
      }
      const replay = Stream.make("a", "b", "c").pipe(Stream.rechunk(1))
      const fiber = yield* Effect.forkChild(writeReplay(replay, peer, new Outbox<string>(1000)))
      for (let turn = 0; turn < 20; turn++) yield* Effect.yieldNow
      assert.deepStrictEqual(written, ["a", "b"])
      yield* Fiber.interrupt(fiber)
    })
  )
})
