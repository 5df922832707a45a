import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { hasMoreValues } from "../../src/controlPlane/http/strictRequest.ts"
import { assertError, options, removed, service } from "../controlPlane/http/support/http.ts"
import { Muster } from "../support/Muster.ts"
import { create, expectStatus } from "../support/servers.ts"

const numbered = <A>(length: number, value: A): Readonly<Record<string, A>> =>
  Object.fromEntries(Array.from({ length }, (_, index) => [`a${index}`, value]))

const empty = { parser: "ini", find: {} }
const patchOf = (find: unknown) => ({ configs: { file: { parser: "ini", find } } })

const FILES = "body field overrides.configs: Expected at most 256 files"
const VALUES = "body field overrides.configs: Expected at most 4096 values in all files"
const VARIABLES = "body field overrides.env: Expected at most 256 variables"

layer(service(), options)("overrides", (it) => {
  describe("security: the work of one request is bounded", () => {
    it.effect("a creation and a change with too many files, values or variables are 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        const refused: ReadonlyArray<readonly [overrides: object, detail: string]> = [
          [{ configs: numbered(257, empty) }, FILES],
          [patchOf(numbered(4097, 1)), VALUES],
          [patchOf({ list: Array.from({ length: 4096 }, () => 1) }), VALUES],
          [{ env: numbered(257, "") }, VARIABLES]
        ]
        for (const [overrides, detail] of refused) {
          const body = { blueprint_id: "kept", overrides }
          assertError(yield* api.request("POST", "/api/servers?dry_run=true", { body }), 422, detail)
          assertError(yield* api.request("POST", "/api/servers", { body }), 422, detail)
          assertError(yield* api.request("PATCH", `/api/servers/${id}`, { body: { overrides } }), 422, detail)
        }
        for (const [overrides, detail] of [
          [{ configs: numbered(257, null) }, FILES],
          [{ env: numbered(257, null) }, VARIABLES]
        ] as const) {
          assertError(yield* api.request("PATCH", `/api/servers/${id}`, { body: { overrides } }), 422, detail)
        }
        yield* removed(id)
      })
    )

    it.effect(
      "overrides at the bounds are accepted; a change cannot go beyond them in several requests",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const configs = { ...numbered(255, empty), file: { parser: "ini", find: numbered(4096, 1) } }
          const id = yield* create(api, "kept", { overrides: { configs, env: numbered(256, "") } })
          const patch = (configs: object) =>
            api.request("PATCH", `/api/servers/${id}`, { body: { overrides: { configs } } })
          const detail = (bound: string) =>
            `body field overrides.configs: expected at most ${bound}, with those that the server has`
          assertError(yield* patch({ more: empty }), 422, detail("256 files"))
          assertError(yield* patch({ a0: { find: { more: 1 } } }), 422, detail("4096 values in all files"))
          const { json } = yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, {
            body: { overrides: { configs: { a0: null, more: empty } } }
          })
          assert.strictEqual(Object.keys(json.overrides.configs).length, 256)
          yield* removed(id)
        })
    )

    it.effect("a body with more than 12,000 values is 422 before its fields are checked", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const detail = "body: more than 12000 values in arrays and objects"
        const many = numbered(20_000, "")
        const refused: ReadonlyArray<readonly [path: string, body: unknown]> = [
          ["/api/servers", { blueprint_id: "kept", overrides: { env: many } }],
          ["/api/servers", { blueprint_id: "kept", labels: many }],
          ["/api/servers/power", { action: "start", selector: { ids: Object.keys(many) } }],
          ["/api/servers", Array.from({ length: 20_000 }, () => [])]
        ]
        for (const [path, body] of refused)
          assertError(yield* api.request("POST", path, { body }), 422, detail)
        const ids = Object.keys(numbered(10_000, "")).map((id) => `${id},[{\\"`)
        yield* expectStatus(api, 200, "POST", "/api/servers/power", {
          body: { action: "start", selector: { ids } }
        })
      })
    )
  })
})

describe("security: the values of a JSON text", () => {
  it("are counted as its parser counts them, whatever its strings contain", () => {
    const isList = (value: unknown) => typeof value === "object" && value !== null
    const countOf = (value: unknown): number =>
      isList(value)
        ? Object.values(value as object).reduce((sum, one) => sum + countOf(one), 0) +
          Math.max(1, Object.keys(value as object).length)
        : 0
    const text = fc.string({ unit: fc.constantFrom('"', "\\", ",", "[", "{", "}", "a") })
    const json = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        text,
        fc.integer(),
        fc.array(tie("value")),
        fc.dictionary(text, tie("value"))
      )
    })).value
    fc.assert(
      fc.property(json, (value) => {
        const [encoded, count] = [JSON.stringify(value), countOf(value)]
        assert.isFalse(hasMoreValues(encoded, count))
        if (count > 0) assert.isTrue(hasMoreValues(encoded, count - 1))
      })
    )
  })

  it("are counted in an invalid text, too", () => {
    assert.isTrue(hasMoreValues("[".repeat(1000), 100))
    for (const end of ['"', '["\\\\\\"', '"'.repeat(7), "\\"]) assert.isFalse(hasMoreValues(end, 1))
  })
})
