import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as fc from "fast-check"
import { NotFound } from "../../../src/contract/domain/errors.ts"
import type { Overrides, OverridesChange } from "../../../src/contract/domain/Overrides.ts"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { changeOverrides } from "../../../src/controlPlane/blueprints/changeOverrides.ts"
import { resolve } from "../../../src/controlPlane/blueprints/resolve.ts"
import { record } from "../../support/samples.ts"
import { blueprint, software } from "./samples.ts"

const softwares = new Map(
  [
    software("paper"),
    software("other", {
      images: { java_21: "other/java:21" },
      mappings: [{ image: "java_21", range: "default" }],
      limits: { memory_limit: 2, io_weight: 20 },
      configs: { a: { parser: "yaml", find: { x: "other" } }, c: { parser: "ini", find: { k: "other" } } }
    })
  ].map((one) => [one.id, one])
)

const definedBy = (overrides: Overrides): ServerDefinition =>
  Result.getOrThrow(resolve(blueprint(), overrides, softwares))

const changedBy = (before: Overrides, definition: ServerDefinition, change: OverridesChange) =>
  Effect.runSync(
    changeOverrides(record({ overrides: before, definition }), change, (_, overrides) =>
      Effect.fromResult(resolve(blueprint(), overrides, softwares))
    )
  )

const changed = (...given: Parameters<typeof changedBy>) => {
  const { definition, overrides } = changedBy(...given)
  return { definition, overrides }
}

/** Objects with some of the fields; `gone` is a value that any of them may have instead. */
const fieldsOf = <const Gone>(gone: ReadonlyArray<Gone>) => {
  const or = <A>(value: fc.Arbitrary<A>) => fc.oneof(value, ...gone.map((one) => fc.constant(one)))
  const some = <A extends object>(fields: { [K in keyof A]: fc.Arbitrary<A[K]> }) =>
    fc.record(fields, { requiredKeys: [] })
  const word = fc.constantFrom("one", "two")
  const count = fc.integer({ min: 1, max: 3 })
  const find = some({ x: or(word), z: or(fc.constantFrom("one", 2)) })
  return some({
    save: or(fc.boolean()),
    limits: or(some({ memory_limit: or(count), swap: or(count), cpu_limit: or(count) })),
    configs: or(some({ a: or(fc.record({ find })), "./b": or(fc.record({ find })) })),
    software: or(fc.constantFrom("paper", "other")),
    version: or(fc.constantFrom("1.21", "26.1")),
    image: or(fc.constantFrom("java_21", "example/other:1")),
    stop_timeout: or(count),
    env: or(some({ A: or(word), B: or(word) }))
  })
}

const overrides: fc.Arbitrary<Overrides> = fieldsOf([])
const changes: fc.Arbitrary<OverridesChange> = fieldsOf([null])

describe("spec 3.4: overrides", () => {
  it("a server with today's definition gets the one of a creation with the merged overrides", () => {
    fc.assert(
      fc.property(overrides, changes, (before, change) => {
        const after = changed(before, definedBy(before), change)
        assert.deepStrictEqual(after.definition, definedBy(after.overrides))
      })
    )
  })

  it("each field takes its value; null removes, and what the change does not name stays", () => {
    fc.assert(
      fc.property(overrides, changes, (before, change) => {
        const after = changed(before, definedBy(before), change).overrides
        for (const field of ["save", "software", "version", "image", "stop_timeout"] as const) {
          const asked = change[field]
          const expected = asked === undefined ? before[field] : (asked ?? undefined)
          assert.strictEqual(after[field], expected, field)
        }
        for (const name of ["A", "B"]) {
          const asked = change.env === null ? null : change.env?.[name]
          const expected = asked === undefined ? before.env?.[name] : (asked ?? undefined)
          assert.strictEqual(after.env?.[name], expected, name)
        }
      })
    )
  })

  it("spec 10.4: no change of overrides changes the rules of files, whatever today's blueprint has", () => {
    const files = { deny: ["*.key"], volumes: "read" } as const
    fc.assert(
      fc.property(overrides, changes, (before, change) => {
        const after = changed(before, { ...definedBy(before), files }, change)
        assert.deepStrictEqual(after.definition.files, files)
      })
    )
  })

  it("the same change again changes nothing", () => {
    fc.assert(
      fc.property(overrides, changes, (before, change) => {
        const once = changed(before, definedBy(before), change)
        assert.deepStrictEqual(changed(once.overrides, once.definition, change), once)
      })
    )
  })

  it("the removal of all overrides leaves the values of today's blueprint", () => {
    fc.assert(
      fc.property(overrides, (before) => {
        const none: OverridesChange = Object.fromEntries(Object.keys(before).map((field) => [field, null]))
        assert.deepStrictEqual(changed(before, definedBy(before), none), {
          overrides: {},
          definition: definedBy({})
        })
      })
    )
  })

  it("a server of earlier files keeps what the change does not name", () => {
    fc.assert(
      fc.property(overrides, changes, (before, change) => {
        const today = definedBy(before)
        const earlier: ServerDefinition = {
          ...today,
          ports: 9,
          env: { ...today.env, EARLIER: "1" },
          limits: { ...today.limits, disk_space: 7 }
        }
        const after = changed(before, earlier, change)
        const expected = definedBy(after.overrides)
        assert.deepStrictEqual(after.definition, {
          ...expected,
          ports: 9,
          env: { ...expected.env, EARLIER: "1" },
          limits: { ...expected.limits, disk_space: 7 }
        })
      })
    )
  })

  it("names what it sets, and what it removes from the server", () => {
    const before: Overrides = { env: { A: "1", B: "2" } }
    const change = { env: { A: null, C: "3", invented: null }, configs: { invented: null }, limits: null }
    assert.deepStrictEqual(changedBy(before, definedBy(before), change).named, [
      ["env", "A"],
      ["env", "C"]
    ])
  })

  it("a file may have a parser alone, and keeps it without its last key", () => {
    const alone: Overrides = { configs: { new: { parser: "ini", find: {} } } }
    for (const [before, change] of [
      [{}, alone],
      [{}, { configs: { new: { parser: "ini" } } }],
      [{ configs: { new: { parser: "ini", find: { k: 1 } } } }, { configs: { new: { find: { k: null } } } }]
    ] satisfies ReadonlyArray<readonly [Overrides, OverridesChange]>) {
      const after = changed(before, definedBy(before), change)
      assert.deepStrictEqual(after, { overrides: alone, definition: definedBy(alone) })
    }
  })

  it("without its blueprint the overrides of a server cannot be changed: 409 with the way out", () => {
    const gone = changeOverrides(record(), { env: { A: "1" } }, (id) => Effect.fail(NotFound.blueprint(id)))
    const error = Effect.runSync(Effect.flip(gone))
    assert.strictEqual(error._tag, "Conflict")
    assert.include(error.hint, "POST /api/servers/:server/upgrade")
  })
})
