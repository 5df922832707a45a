import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import * as fc from "fast-check"
import { Allocations } from "../../../../src/contract/domain/Allocation.ts"
import { InstallPhase, InstallState, InstallStepName } from "../../../../src/contract/domain/InstallState.ts"
import { allocationsColumn, installColumn } from "../../../../src/controlPlane/store/sql/columns.ts"
import { JsonColumn } from "../../../../src/controlPlane/store/sql/rows.ts"

const time = fc.oneof(
  fc
    .date({ min: new Date("1999-12-30"), max: new Date("2100-01-02"), noInvalidDate: true })
    .map((at) => at.toISOString()),
  fc.constantFrom(
    "2026-02-31T00:00:00.000Z",
    "2026-01-01T24:00:00.000Z",
    "2026-01-01T00:00:00Z",
    "2026-01-01",
    ""
  )
)
const odd = fc.constantFrom<unknown>(null, 1, "", [], {}, true)
const mostly = <A>(usual: fc.Arbitrary<A>) =>
  fc.oneof({ weight: 20, arbitrary: usual }, { weight: 1, arbitrary: odd })

const step = fc.record(
  {
    name: mostly(fc.constantFrom(...InstallStepName.literals)),
    started_at: mostly(time),
    finished_at: mostly(time),
    progress: fc.constantFrom(0.5, 2)
  },
  { requiredKeys: ["name", "started_at"] }
)
const install = fc.record(
  {
    phase: mostly(fc.constantFrom(...InstallPhase.literals)),
    started_at: mostly(time),
    finished_at: mostly(time),
    exit_code: mostly(fc.oneof(fc.integer(), fc.constantFrom(2 ** 32 - 1, 2 ** 32, 1.5))),
    failure_reason: mostly(fc.constantFrom("no disk", "a\nb")),
    steps: mostly(fc.array(step, { maxLength: 9 })),
    other: fc.constant(1)
  },
  { requiredKeys: ["phase"] }
)

const port = mostly(fc.oneof(fc.integer({ min: 1, max: 65_535 }), fc.constantFrom(0, 65_536, 1.5)))
const allocations = fc.record(
  {
    force_outgoing_ip: mostly(fc.boolean()),
    default: mostly(
      fc.record({ ip: mostly(fc.string()), port, other: odd }, { requiredKeys: ["ip", "port"] })
    ),
    alias: mostly(fc.string()),
    mappings: mostly(fc.dictionary(fc.ipV4(), mostly(fc.array(port, { maxLength: 3 })), { maxKeys: 2 }))
  },
  { requiredKeys: ["force_outgoing_ip", "default", "alias", "mappings"] }
)

const sameAs =
  <A, I>(
    schema: Schema.Codec<A, I>,
    {
      decode,
      encode
    }: {
      readonly decode: (text: string) => Result.Result<A, Schema.SchemaError>
      readonly encode: (value: A) => Effect.Effect<string>
    }
  ) =>
  (value: unknown) => {
    const text = JSON.stringify(value)
    const wanted = Schema.decodeUnknownResult(JsonColumn(schema))(text)
    const found = decode(text)
    assert.strictEqual(found._tag, wanted._tag)
    if (Result.isSuccess(found) && Result.isSuccess(wanted)) {
      assert.deepStrictEqual(found.success, wanted.success)
      const written = JSON.parse(Effect.runSync(encode(found.success)))
      assert.deepStrictEqual(written, JSON.parse(Schema.encodeSync(JsonColumn(schema))(wanted.success)))
    }
  }

describe("store: columns of records", () => {
  it("an installation is read and written as by its schema", () => {
    fc.assert(fc.property(fc.oneof(install, odd), sameAs(InstallState, installColumn)))
  })

  it("allocations are read and written as by their schema", () => {
    fc.assert(fc.property(fc.oneof(allocations, odd), sameAs(Allocations, allocationsColumn)))
  })

  it("a text that is no JSON is an error", () => {
    for (const found of [installColumn.decode("{"), allocationsColumn.decode("{")])
      assert.strictEqual(found._tag, "Failure")
  })
})
