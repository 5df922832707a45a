import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Schema } from "effect"
import { makeSharedColumn } from "../../../../src/controlPlane/store/sql/columns.ts"

const Pair = Schema.Struct({
  first: Schema.optionalKey(Schema.Finite),
  second: Schema.optionalKey(Schema.Finite)
})

describe("store: columns with values that repeat", () => {
  it.effect("equal texts share their value", () =>
    Effect.gen(function* () {
      const column = makeSharedColumn(Pair)
      const [one, other] = [column.decode('{"first":1}'), column.decode('{"first":1}')]
      assert.strictEqual(yield* Effect.fromResult(one), yield* Effect.fromResult(other))
    })
  )

  it.effect("a text is read in the same order of keys by the process that wrote it and by others", () =>
    Effect.gen(function* () {
      const writer = makeSharedColumn(Pair)
      const texts = [
        yield* writer.encode({ second: 2, first: 1 }),
        yield* writer.encode({ first: 1, second: 2 })
      ]
      for (const text of texts) {
        const reader = makeSharedColumn(Pair)
        const [own, others] = [writer.decode(text), reader.decode(text)]
        assert.strictEqual(
          JSON.stringify(yield* Effect.fromResult(own)),
          JSON.stringify(yield* Effect.fromResult(others))
        )
      }
    })
  )

  it.effect("equal values have one text, and each is checked", () =>
    Effect.gen(function* () {
      const column = makeSharedColumn(Pair)
      const [one, other] = [{ first: 1 }, { first: 1 }]
      assert.strictEqual(yield* column.encode(one), '{"first":1}')
      assert.strictEqual(yield* column.encode(other), '{"first":1}')
      assert.isTrue(Exit.isFailure(yield* Effect.exit(column.encode({ first: Number.NaN }))))
    })
  )
})
