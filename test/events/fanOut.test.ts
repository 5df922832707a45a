import { assert, describe, it } from "@effect/vitest"
import { Array as Arr, Effect, Stream } from "effect"
import fc from "fast-check"
import { ServerId } from "../../src/domain/Id.ts"
import { type EncodedEvent, type EventFilter, letsThrough } from "../../src/events/EncodedEvent.ts"
import { encode } from "../../src/events/encode.ts"
import { fanOut, type Subscriber, selectionOf } from "../../src/events/fanOut.ts"
import { Outbox } from "../../src/events/Outbox.ts"
import { status } from "./MemoryJournal.ts"
import { itemsOf } from "./outboxStream.ts"

const subscriberOf = (filter: EventFilter, from: number | undefined, bound = 1_000_000): Subscriber => ({
  filter,
  include: new Set(),
  outbox: new Outbox<EncodedEvent>(bound),
  withCursor: false,
  selection: selectionOf(filter, new Set(), false),
  from
})
const eventsOf = (...ids: ReadonlyArray<string>) =>
  ids.flatMap((id, at) => encode({ cursor: at + 1, at: 0, blueprint_id: id, change: status(id) }) ?? [])
const received = ({ outbox }: Subscriber) =>
  Effect.suspend(() => {
    outbox.endUnsafe()
    return Effect.map(Stream.runCollect(itemsOf(outbox)), (events) => events.map(({ cursor }) => cursor))
  })
const letter = fc.constantFrom(..."abcd")
const set = <A extends string>(make: (text: string) => A) =>
  fc.array(letter, { minLength: 1, maxLength: 4 }).map((ids) => new Set(ids.map(make)))
const filters: fc.Arbitrary<EventFilter> = fc.record(
  { serverIds: set((id) => ServerId.make(id)), blueprintIds: set((id) => id) },
  { requiredKeys: [] }
)

describe("spec 5.6: filters", () => {
  it.effect("for any filters and positions, each subscriber receives its events, in their order", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.array(letter, { minLength: 1, maxLength: 12 }),
          fc.array(fc.tuple(filters, fc.option(fc.nat({ max: 12 }), { nil: undefined })), { maxLength: 6 }),
          (ids, wanted) =>
            Effect.runPromise(
              Effect.gen(function* () {
                const events = eventsOf(...ids)
                const subscribers = wanted.map(([filter, from]) => subscriberOf(filter, from))
                if (!Arr.isArrayNonEmpty(events)) return assert.fail("no events")
                assert.strictEqual(fanOut(subscribers, events), 0)
                for (const subscriber of subscribers) {
                  const { filter, from = Number.POSITIVE_INFINITY } = subscriber
                  const expected = events.filter((event) => event.cursor > from && letsThrough(filter, event))
                  assert.deepStrictEqual(
                    yield* received(subscriber),
                    expected.map(({ cursor }) => cursor)
                  )
                }
              })
            )
        )
      )
    )
  )

  it("a subscriber over its bound is cut off, and counted once", () => {
    const [slow, other] = [subscriberOf({}, 0, 1), subscriberOf({}, 0)]
    const events = eventsOf("a")
    if (!Arr.isArrayNonEmpty(events)) return assert.fail("no events")
    assert.strictEqual(fanOut([slow, other], events), 1)
    assert.strictEqual(fanOut([slow, other], events), 0)
    assert.deepStrictEqual([slow.outbox.isOpen, other.outbox.isOpen], [false, true])
  })
})
