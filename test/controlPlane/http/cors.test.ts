import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startService } from "../../support/Service.ts"
import { assertError, noNode } from "./support/http.ts"

const panel = "https://panel.example.com"
const evil = "https://evil.example"
const ask = {
  key: null,
  headers: {
    origin: panel,
    "access-control-request-method": "PATCH",
    "access-control-request-headers": "authorization"
  }
} as const
const allowed = "access-control-allow-origin"

describe("spec 1.2: CORS", () => {
  it.live("CORS is off by default", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: noNode })
      const { headers } = yield* api.request("GET", "/api/nodes", { headers: { origin: panel } })
      assert.deepStrictEqual(
        [...headers.keys()].filter((name) => name.startsWith("access-control-")),
        []
      )
      const preflight = yield* api.request("OPTIONS", "/api/nodes", ask)
      assertError(preflight, 401)
      assert.isNull(preflight.headers.get(allowed))
      for (let asked = 0; asked < 25; asked++) yield* api.request("OPTIONS", "/api/nodes", ask)
      assertError(yield* api.request("GET", "/api/nodes", { key: "wrong" }), 401)
    })
  )

  it.live("only listed origins are allowed, on errors too", () =>
    Effect.gen(function* () {
      const env = { ...noNode, MUSTER_CORS_ORIGINS: `${panel}, http://localhost:3000` }
      const api = yield* startService({ env })
      for (const path of ["/api/nodes", "/api/nope", "/"]) {
        const answer = yield* api.request("GET", path, { headers: { origin: panel } })
        assert.strictEqual(answer.headers.get(allowed), panel, path)
        assert.include(answer.headers.get("vary"), "Origin")
        assert.include(answer.headers.get("access-control-expose-headers"), "x-request-id")
      }
      const refused = yield* api.request("GET", "/api/nodes", { key: "wrong", headers: { origin: panel } })
      assertError(refused, 401)
      assert.strictEqual(refused.headers.get(allowed), panel)
      for (const headers of [{ origin: evil }, { origin: "null" }, {}] as Array<Record<string, string>>) {
        const answer = yield* api.request("GET", "/api/nodes", { headers })
        assert.strictEqual(answer.status, 200)
        assert.isNull(answer.headers.get(allowed))
      }
      const preflight = yield* api.request("OPTIONS", "/api/nodes/x/drained", ask)
      assert.strictEqual(preflight.status, 204)
      assert.strictEqual(preflight.headers.get(allowed), panel)
      assert.include(preflight.headers.get("access-control-allow-methods"), "PATCH")
      assert.include(preflight.headers.get("access-control-allow-headers"), "authorization")
      assert.isNotNull(preflight.headers.get("x-request-id"))
      const foreign = yield* api.request("OPTIONS", "/api/nodes", { key: null, headers: { origin: evil } })
      assert.isNull(foreign.headers.get(allowed))
    })
  )

  it.live("a single listed origin is returned as it is; * allows every origin", () =>
    Effect.gen(function* () {
      const one = yield* startService({ env: { ...noNode, MUSTER_CORS_ORIGINS: panel } })
      const any = yield* startService({ env: { ...noNode, MUSTER_CORS_ORIGINS: "*" } })
      for (const [api, origin, expected] of [
        [one, panel, panel],
        [one, evil, null],
        [any, evil, evil]
      ] as const) {
        const { headers } = yield* api.request("GET", "/api/nodes", { headers: { origin } })
        assert.strictEqual(headers.get(allowed), expected)
      }
    })
  )
})
