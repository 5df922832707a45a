import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { assertError, bearer, noNode, options, raw, rawRequest, service } from "./support/http.ts"

const fresh = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

layer(service(noNode), options)("every response", (it) => {
  describe("spec 1.3: request id", () => {
    it.effect("a request id of 1-128 characters from [A-Za-z0-9._-] is kept, on every kind of response", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const id of ["a", "Abc.1_2-3", "x".repeat(128)]) {
          const headers = { "x-request-id": id }
          for (const path of [
            "/",
            "/nodes",
            "/healthz",
            "/docs",
            "/openapi.json",
            "/openapi-3.0.json",
            "/api/nodes",
            "/metrics"
          ]) {
            const answer = yield* api.request("GET", path, { headers })
            assert.strictEqual(answer.status, 200, path)
            assert.strictEqual(answer.headers.get("x-request-id"), id)
          }
          const refused = yield* api.request("GET", "/api/nodes", { headers, key: "wrong" })
          assert.strictEqual(assertError(refused, 401).request_id, id)
          const missing = yield* api.request("GET", "/api/nope", { headers })
          assert.strictEqual(assertError(missing, 404).request_id, id)
        }
      })
    )

    it.effect("any other request id is replaced by a new one", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const seen = new Set<string>()
        for (const id of [undefined, "", "a b", "x".repeat(129), "a/b", "a,b", "é", "a;b", '"a"']) {
          const answer = yield* api.request("GET", "/api/nope", {
            headers: id === undefined ? {} : { "x-request-id": id }
          })
          const given = assertError(answer, 404).request_id ?? ""
          assert.match(given, fresh)
          seen.add(given)
        }
        assert.strictEqual(seen.size, 9)
        const twice = rawRequest("GET", "/healthz", { "x-request-id": "a", "X-Request-Id": "b" })
        assert.match((yield* raw(api, twice)).headers.get("x-request-id") ?? "", fresh)
      })
    )

    it.effect("the log lines of a request have its request id", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* api.request("POST", "/api/blueprints/reload", {
          headers: { "x-request-id": "find-me-in-the-log" }
        })
        yield* eventually(api.output, (output) => output.includes("find-me-in-the-log"))
      })
    )
  })

  describe("spec 1.4: error body", () => {
    it.effect("the reason phrase of the status line equals that of the body", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [method, path, reason] of [
          ["GET", "/api/nope", "Not Found"],
          ["PUT", "/api/nodes", "Method Not Allowed"],
          ["POST", "/api/servers", "Unprocessable Content"],
          ["GET", "/api/events/ws", "Upgrade Required"]
        ] as const) {
          const answer = yield* raw(api, rawRequest(method, path, bearer(api)))
          assert.strictEqual(answer.reason, reason)
          assert.strictEqual(answer.json.status, reason)
        }
      })
    )

    it.effect("an unknown path is 404, under /api only with a key", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of [
          "/nope",
          "/api/nope",
          "/api",
          "/api/",
          "/API/nodes",
          "/apix",
          "/api/nodes/a/b/c"
        ]) {
          assertError(yield* api.request("GET", path), 404, `no route for GET ${path}`)
        }
        for (const path of ["/nope", "/API/nodes", "/apix"]) {
          assertError(yield* api.request("GET", path, { key: null }), 404)
        }
        for (const path of ["/api", "/api/", "/api/nope", "/api/events/nope"]) {
          assertError(yield* api.request("GET", path, { key: null }), 401)
        }
      })
    )

    it.effect("a path requires a key in every spelling", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/%61pi/nodes", "//api/nodes", "/api//nodes", "/api/nodes/"]) {
          assertError(yield* raw(api, rawRequest("GET", path)), 401, "the Authorization header is missing")
          assert.strictEqual((yield* raw(api, rawRequest("GET", path, bearer(api)))).text, "[]")
        }
        assertError(yield* raw(api, rawRequest("GET", "/api/nodes;a=b")), 401)
        assertError(yield* raw(api, rawRequest("GET", "/api/nodes;a=b", bearer(api))), 422, /unknown field/)
        for (const path of [
          "/%61pi/nope",
          "/api;a",
          "/%6Detrics",
          "//metrics",
          "http://localhost/api/nope"
        ]) {
          assertError(yield* raw(api, rawRequest("GET", path)), 401, "the Authorization header is missing")
        }
      })
    )

    it.effect("a long path is shortened in the message, and hostile paths cause no failure", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { detail } = assertError(yield* api.request("GET", `/api/x/${"a".repeat(5000)}`), 404)
        assert.isBelow(detail?.length ?? 0, 300)
        for (const path of ["/api/nodes/%zz", "/api/nodes/%ff", "/api/nodes/%00", "/api/nodes/../nodes/x"]) {
          assertError(yield* raw(api, rawRequest("GET", path, bearer(api))), 404)
        }
        assertError(yield* api.request("GET", `/api/nodes/${"a".repeat(600)}`), 404)
      })
    )
  })

  describe("spec 1.2: methods", () => {
    it.effect("a wrong method is 405 with the allowed methods", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const long = "n".repeat(300)
        for (const [method, path, allow] of [
          ["PUT", "/api/nodes", "GET, HEAD"],
          ["PUT", "/api/servers", "GET, HEAD, POST, DELETE"],
          ["POST", "/api/servers/x", "GET, HEAD, PATCH, DELETE"],
          ["GET", "/api/servers/x/power", "POST"],
          ["HEAD", "/api/servers/x/power", "POST"],
          ["GET", `/api/nodes/${long}/drained`, "PATCH"],
          ["PUT", `/api/nodes/${long}`, "GET, HEAD, DELETE"],
          ["POST", "/api/events/ws", "GET, HEAD"],
          ["GET", "/api/software/reload/", undefined],
          ["PURGE", "/api/system", "GET, HEAD"],
          ["TRACE", "/api/system", "GET, HEAD"],
          ["POST", "/", "GET, HEAD"],
          ["POST", "/nodes", "GET, HEAD"],
          ["DELETE", "/metrics", "GET, HEAD"],
          ["PUT", "/docs", "GET, HEAD"],
          ["PATCH", "/openapi.json", "GET, HEAD"]
        ] as const) {
          if (allow === undefined) {
            // GET of a reload route is a request for the software with that id.
            assertError(yield* api.request(method, path), 404, "software not found: reload")
            continue
          }
          const answer = yield* raw(api, rawRequest(method, path, bearer(api)))
          assert.strictEqual(answer.status, 405, path)
          assert.strictEqual(answer.headers.get("allow"), allow, path)
          if (method !== "HEAD") assertError(answer, 405)
        }
      })
    )

    it.effect("HEAD returns the response of GET without the body", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of [
          "/",
          "/nodes",
          "/healthz",
          "/readyz",
          "/docs",
          "/openapi.json",
          "/openapi-3.0.json",
          "/api/nodes",
          "/api/system",
          "/api/servers",
          "/api/blueprints",
          "/api/blueprints/kept",
          "/api/mixins",
          "/api/software",
          "/api/nodes/nope",
          "/api/nope"
        ]) {
          const head = yield* api.request("HEAD", path)
          const get = yield* api.request("GET", path, {
            headers: { "x-request-id": head.headers.get("x-request-id") ?? "" }
          })
          assert.strictEqual(head.status, get.status, path)
          assert.strictEqual(head.text, "")
          assert.strictEqual(head.headers.get("content-type"), get.headers.get("content-type"), path)
          // The message of an error contains the method.
          if (get.status === 200) {
            assert.strictEqual(head.headers.get("content-length"), get.headers.get("content-length"), path)
          }
        }
        assertError(yield* api.request("GET", "/api/nodes", { key: null }), 401)
        assert.strictEqual((yield* api.request("HEAD", "/api/nodes", { key: null })).status, 401)
      })
    )

    it.effect("OPTIONS lists the methods; under /api it requires a key", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const answer = yield* api.request("OPTIONS", "/api/servers")
        assert.strictEqual(answer.status, 204)
        assert.strictEqual(answer.headers.get("allow"), "GET, HEAD, POST, DELETE")
        assert.isNull(answer.headers.get("access-control-allow-origin"))
        assert.strictEqual((yield* api.request("OPTIONS", "/", { key: null })).status, 204)
        assertError(yield* api.request("OPTIONS", "/api/nope"), 404)
        assertError(yield* api.request("OPTIONS", "/api/servers", { key: null }), 401)
      })
    )
  })

  describe("spec 1.2: media types", () => {
    it.effect("a JSON body is read with any Content-Type; no Accept header is refused", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const type of [
          "application/json",
          "application/json; charset=utf8",
          "text/plain",
          "application/x-www-form-urlencoded",
          "multipart/form-data; boundary=x",
          "nonsense"
        ]) {
          const answer = yield* api.request("POST", "/api/servers", {
            body: { blueprint_id: "nope" },
            headers: { "content-type": type, accept: "image/png" }
          })
          assertError(answer, 404, "blueprint not found: nope")
        }
        const body = '{"blueprint_id":"nope"}'
        const none = rawRequest(
          "POST",
          "/api/servers",
          { ...bearer(api), "content-length": String(body.length) },
          body
        )
        assertError(yield* raw(api, none), 404, "blueprint not found: nope")
        for (const path of ["/api/nodes", "/", "/healthz"]) {
          const answer = yield* api.request("GET", path, { headers: { accept: "image/png;q=0.1" } })
          assert.strictEqual(answer.status, 200)
        }
      })
    )

    it.effect("a route without a body accepts an empty or small body", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const body of [undefined, "", "{}", "not JSON {", "x".repeat(10_000)]) {
          const answer = yield* api.request("POST", "/api/blueprints/reload", {
            ...(body === undefined ? {} : { raw: body })
          })
          assert.strictEqual(answer.status, 200)
          assert.strictEqual(answer.text, "")
        }
        const get = rawRequest("GET", "/api/nodes", { ...bearer(api), "content-length": "5" }, "hello")
        assert.strictEqual((yield* raw(api, get)).text, "[]")
      })
    )
  })
})
