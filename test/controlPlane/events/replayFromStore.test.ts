import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Stream } from "effect"
import { EventHub } from "../../../src/controlPlane/events/EventHub.ts"
import { LiveFeed, ServerSummaries } from "../../../src/controlPlane/events/LiveFeed.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { append, freshStore } from "../store/support/database.ts"
import { eventsOf } from "./eventsOf.ts"

const overStore = EventHub.layer({ replayPage: 20 }).pipe(
  Layer.provide([
    Layer.succeed(ServerSummaries, {
      find: () => undefined,
      facts: () => undefined,
      nameOf: () => undefined
    }),
    LiveFeed.layer
  ]),
  Layer.provideMerge(freshStore()),
  Layer.provide(NodeServices.layer)
)

describe("spec 5.5: resume from the database", () => {
  it.live("every event arrives exactly once and in order during concurrent writes", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const { write } = yield* Store
      const total = 400
      const writer = yield* Effect.forkChild(
        Effect.forEach(
          Array.from({ length: total / 2 }, (_, i) => i),
          (i) => write(append(`a${i}`, `b${i}`)),
          { concurrency: 8, discard: true }
        )
      )
      const watcher = yield* subscribe({ filter: {} })
      const got: Array<string> = []
      let cursor = 0
      for (let stay = 1; got.length < total; stay = (stay * 7) % 31) {
        yield* subscribe({ filter: {}, cursor }).pipe(
          Effect.flatMap((subscription) =>
            Stream.runForEach(
              Stream.take(eventsOf(subscription), Math.min(stay, total - got.length)),
              (event) =>
                Effect.sync(() => {
                  got.push(event.text)
                  cursor = event.cursor
                })
            )
          ),
          Effect.scoped
        )
      }
      yield* Fiber.join(writer)
      const live = yield* Stream.runCollect(Stream.take(eventsOf(watcher), total))
      assert.deepStrictEqual(
        got,
        live.map((event) => event.text)
      )
      assert.strictEqual(new Set(got).size, total)
    }).pipe(Effect.scoped, Effect.provide(overStore))
  )
})
