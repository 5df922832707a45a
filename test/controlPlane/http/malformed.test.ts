import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { assertError, bearer, exchange, noNode, options, raw, rawRequest, service } from "./support/http.ts"

layer(service(noNode), options)("malformed bytes", (it) => {
  describe("spec 1.4: every status >= 400 has the error body", () => {
    it.effect("malformed HTTP is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const auth = bearer(api)
        for (const bytes of [
          "GARBAGE\r\n\r\n",
          "\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003",
          "FOO /api/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
          "GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
          "GET /health z HTTP/1.1\r\nHost: x\r\n\r\n",
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
          "GET /healthz HTTP/1.1\r\nHost: x\r\nNo colon here\r\n\r\n",
          "GET /healthz HTTP/1.1\r\nHost: x\r\nA: \u0000\r\n\r\n",
          rawRequest("POST", "/api/servers", { ...auth, "content-length": "x" }),
          rawRequest("POST", "/api/servers", { ...auth, "content-length": "-1" }),
          rawRequest("POST", "/api/servers", {
            ...auth,
            "content-length": "2",
            "transfer-encoding": "chunked"
          }),
          rawRequest("POST", "/api/servers", { ...auth, "transfer-encoding": "chunked" }, "zz\r\n")
        ]) {
          assertError(yield* raw(api, bytes), 422, "malformed HTTP request")
        }
      })
    )

    it.effect("a NUL in the path is 404, in the query 422: PostgreSQL takes none", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/api/servers/%00/crashes", "/api/rollouts/a%00"])
          assertError(yield* api.request("GET", path), 404, /^path field (?:server|rollout): has a NUL/)
        for (const path of ["/api/audit?actor=%00", "/api/crashes?node_id=a%00b"])
          assertError(yield* api.request("GET", path), 422, "query: has a NUL character")
        const key = { name: "a\0b", scope: "ReadOnly" }
        assertError(yield* api.request("POST", "/api/keys", { body: key }), 422, /^body field name/)
      })
    )

    it.effect("headers or a target over 16 KiB are 431", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        assertError(yield* raw(api, rawRequest("GET", "/healthz", { "x-long": "a".repeat(20_000) })), 431)
        assertError(yield* raw(api, rawRequest("GET", `/api/nodes/${"a".repeat(20_000)}`)), 431)
      })
    )

    it.effect("a second Host or Authorization header is 400, in any spelling", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const key = `Authorization: Bearer ${api.key}`
        for (const [name, lines] of [
          ["host", ["Host: x", "host: y", key]],
          ["AUTHORIZATION", ["Host: x", key, "AUTHORIZATION: Bearer other"]]
        ] as const) {
          const answer = yield* raw(
            api,
            `GET /api/nodes HTTP/1.1\r\nConnection: close\r\n${lines.join("\r\n")}\r\n\r\n`
          )
          assertError(answer, 400, `the request has several ${name} headers`)
        }
      })
    )

    it.effect("HTTP/1.1 without Host is 400; HTTP/1.0 does not require Host", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const answer = yield* raw(api, "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        assertError(answer, 400, "the Host header is missing")
        const absolute = yield* raw(api, "GET http://x/healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        assertError(absolute, 400, "the Host header is missing")
        for (const host of ["a, b", "a/b", "user@a", "a b", "a\\b"]) {
          const invalid = yield* raw(
            api,
            `GET /healthz HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`
          )
          assertError(invalid, 400, "the Host header is invalid")
        }
        assert.strictEqual((yield* raw(api, "GET /healthz HTTP/1.0\r\n\r\n")).text, '{"status":"ok"}')
      })
    )

    it.effect("CONNECT is 405 for any target", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const target of ["example.com:443", "/api/nodes"]) {
          const answer = yield* raw(api, rawRequest("CONNECT", target, bearer(api)))
          assertError(answer, 405)
          assert.include(answer.headers.get("allow"), "GET")
        }
      })
    )

    it.effect("an unknown expectation is ignored, and 100-continue is answered", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const body = '{"blueprint_id":"nope"}'
        const headers = { ...bearer(api), "content-length": String(body.length) }
        const odd = rawRequest("POST", "/api/servers", { ...headers, expect: "tea" }, body)
        assertError(yield* raw(api, odd), 404, "blueprint not found: nope")
        const usual = rawRequest("POST", "/api/servers", { ...headers, expect: "100-continue" }, body)
        assert.match(
          yield* exchange(api, usual),
          /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 404 Not Found\r\n/
        )
      })
    )

    it.effect("an upgrade to an unsupported protocol is an ordinary request", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = { ...bearer(api), connection: "Upgrade, close", upgrade: "h2c" }
        assert.strictEqual((yield* raw(api, rawRequest("GET", "/api/nodes", headers))).text, "[]")
        assertError(yield* raw(api, rawRequest("GET", "/api/events/ws", headers)), 426)
      })
    )

    it.effect("the response to a refused upgrade announces the end of the connection", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = { ...bearer(api), connection: "Upgrade", upgrade: "websocket" }
        for (const path of ["/api/events/ws", "/api/nodes", "/api/nope"]) {
          const answer = yield* raw(api, rawRequest("GET", path, headers))
          assert.strictEqual(answer.headers.get("connection"), "close", path)
        }
      })
    )

    it.effect("a response is not lost if malformed bytes or the end follow the request in one packet", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const garbage = yield* exchange(api, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\ngarbage\r\n\r\n")
        assert.match(garbage, /^HTTP\/1\.1 200 OK\r\n.*{"status":"ok"}HTTP\/1\.1 422 /s)
        const half = "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
        assert.match(yield* exchange(api, half, "end"), /^HTTP\/1\.1 405 /)
      })
    )

    it.effect("malformed bytes after a request end the connection and add nothing to the response", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = `GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${api.key}\r\n\r\n`
        const garbage = { after: ": connected", send: `${"garbage ".repeat(10)}\r\n\r\n` }
        const received = yield* exchange(api, stream, garbage)
        assert.match(received, /^HTTP\/1\.1 200 OK\r\n/)
        assert.match(received, /: connected\n\n\r\n$/)
      })
    )
  })

  it.effect("the service keeps serving afterwards", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      assert.strictEqual((yield* api.request("GET", "/readyz")).status, 200)
      assert.notInclude(api.output(), "ERROR")
    })
  )
})
