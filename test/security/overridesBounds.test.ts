import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
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
  })
})
