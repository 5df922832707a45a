import { assert, describe, it } from "@effect/vitest"
import { malformation } from "./http.ts"
import { keptOf } from "./requests.ts"

const body = { code: "503", status: "Service Unavailable", detail: "why", hint: "what", request_id: "r" }
const headers: Readonly<Record<string, string>> = { "x-request-id": "r", "content-type": "application/json" }
const of = (status: number, answer: unknown, own: Readonly<Record<string, string>> = headers) =>
  malformation(status, typeof answer === "string" ? answer : JSON.stringify(answer), (name) => own[name])

describe("model: the form of responses", () => {
  it("spec 1.4: every error has the error body, and every response has a request id", () => {
    assert.isUndefined(of(503, body))
    assert.isUndefined(of(200, "[]"))
    const { hint, ...short } = body
    for (const wrong of [
      of(200, "[]", {}),
      of(503, body, { ...headers, "content-type": "text/plain" }),
      of(503, "<html>"),
      of(503, short),
      of(503, { ...body, stack: "at" }),
      of(503, { ...body, code: "500" }),
      of(503, { ...body, status: "Unavailable" }),
      of(503, { ...body, detail: "" }),
      of(503, { ...body, request_id: "another" })
    ]) {
      assert.isDefined(wrong)
    }
    assert.strictEqual(hint, "what")
  })

  it("a response whose shape differs from the expected one is malformed", () => {
    const requested = { kind: "get-server", server: "srv_a", what: "" } as const
    const answer = (text: string, status = 200) => ({ status, text, malformed: undefined })
    assert.deepStrictEqual(keptOf(requested, answer('{"id":"srv_a"}')), {})
    assert.isDefined(keptOf(requested, answer('{"id":"srv_b"}')).malformed)
    assert.isDefined(keptOf(requested, answer('{"id":')).malformed)
    assert.strictEqual(keptOf(requested, answer(JSON.stringify(body), 503)).detail, "why")
    const list = { kind: "list", what: "/api/servers?ids_only=true" } as const
    assert.deepStrictEqual(keptOf(list, answer('["srv_a"]')).ids, ["srv_a"])
    const create = {
      kind: "create",
      key: "k",
      body: { blueprint_id: "kept", overrides: { env: { OPERATION: "k" } } }
    } as const
    assert.deepStrictEqual(keptOf(create, answer('{"id":"srv_a","node_id":"n0"}', 202)), {
      id: "srv_a",
      node_id: "n0"
    })
    assert.isDefined(keptOf(create, answer("{}", 202)).malformed)
    const many = { kind: "power-many", servers: ["srv_a", "srv_b"], action: "start" } as const
    const refused = { ...body, code: "404", status: "Not Found" }
    assert.deepStrictEqual(
      keptOf(many, answer(JSON.stringify({ srv_a: { status: 200 }, srv_b: refused }))).outcomes,
      new Map([
        ["srv_a", { status: 200 }],
        ["srv_b", { status: 404, detail: "why" }]
      ])
    )
    assert.isDefined(keptOf(many, answer('{"srv_a":{"status":200}}')).malformed)
  })
})
