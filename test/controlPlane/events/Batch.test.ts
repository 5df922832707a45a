import { assert, describe, it } from "@effect/vitest"
import { Array as Arr } from "effect"
import fc from "fast-check"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { type EventFilter, letsThrough } from "../../../src/controlPlane/events/EncodedEvent.ts"
import { encode } from "../../../src/controlPlane/events/encode.ts"
import { Batch, selectionOf } from "../../../src/controlPlane/events/Publisher.ts"
import { status } from "./MemoryJournal.ts"

const batchOf = (...ids: ReadonlyArray<string>): Batch => {
  const events = ids.flatMap(
    (id, at) => encode({ cursor: at + 1, at: 0, blueprint_id: id, change: status(id) }) ?? []
  )
  return Arr.isArrayNonEmpty(events) ? new Batch(1, events) : assert.fail("no events")
}
const letter = fc.constantFrom(..."abcd")
const set = <A extends string>(make: (text: string) => A) =>
  fc.array(letter, { minLength: 1, maxLength: 4 }).map((ids) => new Set(ids.map(make)))
const filters: fc.Arbitrary<EventFilter> = fc.record(
  { serverIds: set((id) => ServerId.make(id)), blueprintIds: set((id) => id) },
  { requiredKeys: [] }
)

describe("spec 5.6: filters", () => {
  it("for any filters and positions, a subscriber receives its events, in their order", () => {
    fc.assert(
      fc.property(
        fc.array(letter, { minLength: 1, maxLength: 12 }),
        fc.array(fc.tuple(filters, fc.nat({ max: 12 })), { maxLength: 6 }),
        (ids, wanted) => {
          const batch = batchOf(...ids)
          for (const [filter, after] of wanted) {
            const expected = batch.events.filter(
              (event) => event.cursor > after && letsThrough(filter, event)
            )
            assert.deepStrictEqual(
              batch.select(selectionOf(filter, new Set()), after).map(({ cursor }) => cursor),
              expected.map(({ cursor }) => cursor)
            )
          }
        }
      )
    )
  })

  it("subscribers with the same selection share the events; those who joined later have their own", () => {
    const batch = batchOf("a", "b")
    const selection = () => selectionOf({ topics: new Set(["status"]) }, new Set())
    assert.strictEqual(batch.select(selection(), 0), batch.select(selection(), 0))
    assert.deepStrictEqual(
      batch.select(selection(), 1).map(({ cursor }) => cursor),
      [2]
    )
  })
})
