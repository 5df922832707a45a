import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { assertError, bearer, noNode, options, raw, rawRequest, service } from "./support/http.ts"

const limit = 4096
const chunked = (size: number) =>
  [...Array(size / 1000).fill(`3e8\r\n${"a".repeat(1000)}\r\n`), "0\r\n\r\n"].join("")

layer(service({ ...noNode, MUSTER_BODY_LIMIT: String(limit) }), options)("checks", (it) => {
  describe("spec 1.4: order of checks", () => {
    it.effect("each check precedes all checks listed after it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const large = { raw: "a".repeat(limit + 1) }
        const steps = [
          ["authentication", "PUT", "/api/nope", { ...large, key: null }, 401],
          ["route", "PUT", "/api/nope", large, 404],
          ["method", "PUT", "/api/servers", large, 405],
          ["size, announced", "POST", "/api/servers", large, 413],
          ["shape before existence", "POST", "/api/servers", { body: { blueprint_id: "nope", x: 1 } }, 422],
          ["shape before existence", "POST", "/api/servers/nope/power", { body: { action: "fly" } }, 422],
          ["shape before existence", "PATCH", "/api/nodes/nope/drained", { body: {} }, 422],
          ["existence of the blueprint", "POST", "/api/servers", { body: { blueprint_id: "nope" } }, 404],
          [
            "existence of the node",
            "POST",
            "/api/servers",
            { body: { blueprint_id: "kept", node_id: "nope" } },
            404
          ],
          ["existence", "POST", "/api/servers/nope/power", { body: { action: "stop" } }, 404],
          ["capacity", "POST", "/api/servers", { body: { blueprint_id: "kept" } }, 503]
        ] as const
        for (const [name, method, path, request, status] of steps) {
          const answer = yield* api.request(method, path, request)
          assert.strictEqual(answer.status, status, `${name}: ${answer.text}`)
          assertError(answer, status)
        }
      })
    )

    it.effect("spec 3.3: 503 if no node exists", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const answer = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } })
        assertError(answer, 503, "no nodes available")
        assert.deepStrictEqual((yield* api.request("GET", "/api/servers")).json, [])
      })
    )
  })

  describe("spec 1.2: body size", () => {
    it.effect(
      "a body over the limit is 413, with and without Content-Length, also on a route without a body",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          for (const [method, path] of [
            ["POST", "/api/servers"],
            ["POST", "/api/servers/nope/power"],
            ["POST", "/api/blueprints/reload"],
            ["POST", "/api/events/tickets"],
            ["GET", "/api/nodes"],
            ["DELETE", "/api/servers/nope"]
          ] as const) {
            const announced = { ...bearer(api), "content-length": String(limit + 1) }
            const tooLarge = yield* raw(api, rawRequest(method, path, announced, "a".repeat(limit + 1)))
            assertError(tooLarge, 413, "the request body is too large")
            const streamed = { ...bearer(api), "transfer-encoding": "chunked" }
            assertError(yield* raw(api, rawRequest(method, path, streamed, chunked(6000))), 413)
          }
        })
    )

    it.effect("413 is sent before the body has arrived", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = { ...bearer(api), "content-length": "1000000000" }
        assertError(yield* raw(api, rawRequest("POST", "/api/servers", headers, "{")), 413)
      })
    )

    it.effect("a body of exactly the limit is read, in one chunk or in many", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const body = `{"blueprint_id":"nope"}`.padEnd(limit)
        assertError(yield* api.request("POST", "/api/servers", { raw: body }), 404)
        assertError(yield* api.request("POST", "/api/servers", { raw: `${body} ` }), 413)
        const pieces = [...`{"blueprint_id":"nope"}`].map((char) => `1\r\n${char}\r\n`).join("")
        const headers = { ...bearer(api), "transfer-encoding": "chunked" }
        const answer = yield* raw(api, rawRequest("POST", "/api/servers", headers, `${pieces}0\r\n\r\n`))
        assertError(answer, 404, "blueprint not found: nope")
      })
    )
  })

  describe("spec 1.2: 422", () => {
    const refused = (path: string, method = "POST") =>
      Effect.fnUntraced(function* (raw: string, detail: string | RegExp) {
        const api = yield* Muster
        assertError(yield* api.request(method, path, { raw }), 422, detail)
      })

    it.effect("a body that is not a JSON object is refused as such", () =>
      Effect.gen(function* () {
        for (const path of ["/api/servers", "/api/servers/nope/power", "/api/servers/nope/commands"]) {
          const post = refused(path)
          for (const text of ["{", "nonsense", "{'a':1}", '{"a":1,}', "[1", " ", '{"a":NaN}']) {
            yield* post(text, "body: Expected a valid JSON body")
          }
          for (const text of ["", "null", "5", '"x"', "[]", "true"]) {
            yield* post(text, "body: Expected an object")
          }
        }
      })
    )

    it.effect("detail names the path of the field and the expected value: creation", () =>
      Effect.gen(function* () {
        const post = refused("/api/servers")
        const overrides = (value: unknown) => JSON.stringify({ blueprint_id: "kept", overrides: value })
        yield* post("{}", "body field blueprint_id: required, but missing")
        yield* post('{"blueprint_id":5}', "body field blueprint_id: Expected string")
        yield* post('{"blueprint_id":null}', "body field blueprint_id: Expected string")
        yield* post('{"blueprint_id":"kept","node_id":5}', "body field node_id: Expected string | null")
        yield* post('{"blueprint_id":"kept","start":"yes"}', "body field start: Expected boolean | null")
        yield* post(
          '{"blueprint":"kept","blueprint_id":"kept"}',
          "body field blueprint: unknown field; did you mean blueprint_id?"
        )
        yield* post('{"blueprint_id":"kept","xyz":1}', "body field xyz: unknown field")
        yield* post('{"blueprint_id":"kept","__proto__":{}}', "body field __proto__: unknown field")
        yield* post(overrides([]), "body field overrides: Expected an object | null")
        yield* post(overrides({ nope: 1 }), "body field overrides.nope: unknown field")
        yield* post(overrides({ save: "no" }), "body field overrides.save: Expected boolean | null")
        yield* post(
          overrides({ limits: { memory_limit: "1" } }),
          "body field overrides.limits.memory_limit: Expected a number of MiB | null"
        )
        yield* post(
          overrides({ limits: { memory_limit: "4G" } }),
          "body field overrides.limits.memory_limit: Expected a number of MiB (4096 here) | null"
        )
        yield* post(
          '{"blueprint_id":"kept","expires_in":"12h"}',
          "body field expires_in: Expected a number of seconds (43200 here) | null"
        )
        yield* post(
          overrides({ limits: { memory_limit: -1 } }),
          /^body field overrides\.limits\.memory_limit: .*between 0 and/
        )
        yield* post(
          overrides({ limits: { io_weight: 9 } }),
          /^body field overrides\.limits\.io_weight: .*between 10 and 1000/
        )
        yield* post(
          overrides({ limits: { io_weight: 10.5 } }),
          /^body field overrides\.limits\.io_weight: Expected an integer/
        )
        yield* post(
          overrides({ limits: { threads: "x" } }),
          /^body field overrides\.limits\.threads: Expected a cpuset/
        )
        yield* post(
          overrides({ limits: { memroy: 1 } }),
          "body field overrides.limits.memroy: unknown field; did you mean memory_limit?"
        )
        yield* post(
          overrides({ configs: { a: { parser: "x", find: {} } } }),
          /^body field overrides\.configs\.a\.parser: Expected "properties"/
        )
        yield* post(
          overrides({ configs: { a: {} } }),
          "body field overrides.configs.a.find: required, but missing"
        )
        yield* post(
          overrides({ configs: { a: { find: {}, x: 1 } } }),
          "body field overrides.configs.a.x: unknown field"
        )
        yield* post(
          overrides({ software: "Not An Id" }),
          /^body field overrides\.software: Expected an id such as/
        )
        yield* post(
          overrides({ software: "undefined-software" }),
          "software is not defined: undefined-software"
        )
        yield* post(overrides({ version: "" }), /^body field overrides\.version: Expected a version/)
        yield* post(overrides({ image: " " }), /^body field overrides\.image: Expected an image/)
        yield* post(overrides({ env: { A: 1 } }), "body field overrides.env.A: Expected string")
        yield* post(
          overrides({ env: { A: "\0" } }),
          "body field overrides.env.A: Expected a value without NUL"
        )
      })
    )

    it.effect("detail names the path of the field and the expected value: other bodies", () =>
      Effect.gen(function* () {
        const power = refused("/api/servers/nope/power")
        yield* power("{}", "body field action: required, but missing")
        yield* power('{"action":"fly"}', /^body field action: Expected "start" \| "stop"/)
        yield* power(
          '{"action":"stop","wait_seconds":3601}',
          /^body field wait_seconds: .*between 0 and 3600/
        )
        yield* power('{"action":"stop","wait_seconds":-1}', /^body field wait_seconds: .*between 0 and 3600/)
        yield* power('{"action":"stop","x":1}', "body field x: unknown field")
        const commands = refused("/api/servers/nope/commands")
        yield* commands("{}", "body field commands: required, but missing")
        yield* commands('{"commands":[]}', /^body field commands: .*at least 1/)
        yield* commands(
          JSON.stringify({ commands: Array(101).fill("x") }),
          /^body field commands: .*at most 100/
        )
        yield* commands('{"commands":"x"}', /^body field commands: Expected array/)
        yield* commands('{"commands":["ok",5]}', "body field commands.1: Expected string")
        for (const control of ["\n", "\r", "\0", "\u001b", "\u007f", "\u0085", "\u2028"]) {
          yield* commands(
            JSON.stringify({ commands: [`a${control}b`] }),
            /^body field commands\.0: Expected a line without control/
          )
        }
        const drained = refused("/api/nodes/nope/drained", "PATCH")
        yield* drained("{}", "body field drained: required, but missing")
        yield* drained('{"drained":"true"}', "body field drained: Expected boolean")
        yield* drained('{"drained":true,"x":1}', "body field x: unknown field")
      })
    )

    it.effect(
      "an unknown query parameter is refused after 404 and 405, and detail names the closest known one",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          for (const [method, path, detail] of [
            ["GET", "/api/nodes?id_only=true", "query field id_only: unknown field; did you mean ids_only?"],
            ["GET", "/api/blueprints?limt=2", "query field limt: unknown field; did you mean limit?"],
            ["HEAD", "/api/servers?zzz", undefined],
            ["GET", "/api/events?curser=0", "query field curser: unknown field; did you mean cursor?"],
            ["POST", "/api/servers?x=1", "query field x: unknown field"],
            ["GET", "/api/servers/nope?x=1", "query field x: unknown field"]
          ] as const) {
            const answer = yield* api.request(method, path)
            if (detail === undefined) assert.strictEqual(answer.status, 422)
            else assertError(answer, 422, detail)
          }
          const { hint } = assertError(yield* api.request("GET", "/api/keys/self?x=1"), 422)
          assert.strictEqual(hint, "Remove the query: this route has no query parameters.")
          assertError(yield* api.request("GET", "/api/nope?x=1"), 404)
          assertError(yield* api.request("PUT", "/api/nodes?x=1"), 405)
          assertError(yield* api.request("GET", "/api/nodes?x=1", { key: null }), 401)
          for (const path of ["/api/blueprints?meta=1", "/?x=1", "/nodes?x=1", "/healthz?x=1"]) {
            assert.strictEqual((yield* api.request("GET", path)).status, 200, path)
          }
        })
    )

    it.effect("detail names the invalid query parameter or header", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [path, detail] of [
          ["/api/nodes?ids_only=true&ids_only=true", "query field ids_only: Expected once, but repeated"],
          ["/api/servers?include=nope", /^query field include: expected status, limits, .*, got "nope"$/],
          [
            "/api/servers?ids_only=true&include=x",
            /^query field include: expected status, limits, .*, got "x"$/
          ],
          [
            "/api/servers/nope?include=status,x",
            /^query field include: expected status, limits, .*, got "x"$/
          ],
          ...["/logs", "/install/logs"].flatMap((route) =>
            ["0", "-1", "1.5", "x", "1e3", "00", " 1"].flatMap((value) =>
              ["page", "per_page"].map(
                (name) =>
                  [
                    `/api/servers/nope${route}?${name}=${value}`,
                    `query field ${name}: Expected a whole number of at least 1`
                  ] as const
              )
            )
          ),
          ...["x", "1.5", "1e2", "--1"].map(
            (value) =>
              [`/api/servers/nope/logs?size=${value}`, "query field size: Expected a whole number"] as const
          ),
          ...["maybe", "TRUE", "1", "yes"].map(
            (value) =>
              [
                `/api/servers/nope/stats?update_disk_usage=${value}`,
                "query field update_disk_usage: Expected true or false"
              ] as const
          ),
          ["/api/events?cursor=x", /^cursor: expected a whole number/],
          ["/api/events?cursor=-1", /^cursor: expected a whole number/],
          ["/api/events?topics=nope", /^query field topics: .*got "nope"/]
        ] as const) {
          assertError(yield* api.request("GET", path), 422, detail)
        }
        for (const value of ["maybe", "TRUE", "1"]) {
          const answer = yield* api.request("DELETE", `/api/servers/nope?force=${value}`)
          assertError(answer, 422, "query field force: Expected true or false")
        }
        for (const value of ["", "true", "false"]) {
          const answer = yield* api.request("DELETE", `/api/servers/nope?force=${value}`)
          assertError(answer, 404, "server not found: nope")
        }
        const lastEvent = yield* api.request("GET", "/api/events", { headers: { "last-event-id": "x" } })
        assertError(lastEvent, 422, /^Last-Event-ID: expected a whole number/)
        for (const key of ["", "x".repeat(129), "é"]) {
          const answer = yield* api.request("POST", "/api/servers", {
            body: { blueprint_id: "kept" },
            headers: { "idempotency-key": key }
          })
          assertError(answer, 422, "header field idempotency-key: Expected 1-128 printable characters")
        }
      })
    )

    it.effect("an optional field that is null counts as absent, and so does an empty node_id", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const none = {
          save: null,
          limits: null,
          configs: null,
          software: null,
          version: null,
          image: null,
          env: null
        }
        for (const body of [
          { blueprint_id: "kept", node_id: null, overrides: null, start: null },
          { blueprint_id: "kept", node_id: "", overrides: none },
          {
            blueprint_id: "kept",
            overrides: { limits: { memory_limit: null, threads: null, oom_disabled: null } }
          },
          { blueprint_id: "kept", overrides: { configs: { a: { parser: "json", find: { b: null } } } } }
        ]) {
          assertError(yield* api.request("POST", "/api/servers", { body }), 503, "no nodes available")
        }
        const body = { action: "stop", wait_seconds: null }
        assertError(
          yield* api.request("POST", "/api/servers/nope/power", { body }),
          404,
          "server not found: nope"
        )
      })
    )
  })

  it.effect("a deeply nested value is refused without recursion", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const nested = (depth: number) =>
        `{"blueprint_id":"kept","overrides":{"configs":{"a":{"parser":"json","find":{"b":${"[".repeat(depth)}${"]".repeat(depth)}}}}}}`
      assertError(yield* api.request("POST", "/api/servers", { raw: nested(10) }), 503)
      const answer = yield* api.request("POST", "/api/servers", { raw: nested(1900) })
      assertError(answer, 422, /^body field overrides\.configs\.a\.find: .*nested at most 32 deep/)
    })
  )
})
