import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import type { ErrorStatus } from "../../../src/contract/domain/ApiError.ts"
import { Muster } from "../../support/Muster.ts"
import { freshSeed } from "../../support/random.ts"
import { expectStatus, installed, running } from "../../support/servers.ts"
import type { Document } from "./support/generate.ts"
import { assertError, options, service } from "./support/http.ts"

const RUNS = 60

const isRefusal = (status: number): status is ErrorStatus => status >= 400

const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.constantFrom("", "nope", "__proto__", "../../etc", "\0", "\ud800", "x".repeat(5000))
)
const wrong = fc.oneof(fc.jsonValue({ maxDepth: 2 }), text)

/** A field of a body: absent, right or wrong. */
const field = (right: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 25, arbitrary: right }, { weight: 1, arbitrary: wrong })

const path = fc.oneof(
  { weight: 30, arbitrary: fc.constantFrom("/a.txt", "/world", "/world/level.dat", "/", "/none") },
  {
    weight: 1,
    arbitrary: fc.constantFrom("a.txt", "/../a", "/world/../a.txt", "//a", "/a/", "/\ud800", "/a\0")
  },
  { weight: 1, arbitrary: text }
)

layer(service(), options)("arbitrary restores", (it) => {
  describe("spec 1.3, 12.5, 12.7: restores and creations from a backup", () => {
    it.effect("each has a documented status and, on failure, the error body; none is a defect", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const document: Document = (yield* expectStatus(api, 200, "GET", "/openapi.json")).json
        const [offline, up] = [yield* installed(api, "kept"), yield* running(api, "kept")]
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        for (const name of ["/a.txt", "/world/level.dat"])
          yield* api.request("PUT", `/api/servers/${offline}/files/content?path=${name}`, { raw: "old" })
        yield* expectStatus(api, 202, "POST", `/api/servers/${offline}/backups`, { body: {}, headers })
        const [{ id }] = (yield* expectStatus(api, 200, "GET", "/api/backups")).json
        const backup = fc.oneof(
          { weight: 8, arbitrary: fc.constant(id) },
          { weight: 1, arbitrary: fc.constantFrom("nope", id.toUpperCase(), `${id}x`, offline) },
          { weight: 1, arbitrary: wrong }
        )
        const restores = fc.tuple(
          fc.oneof(
            { weight: 8, arbitrary: fc.constant(offline) },
            { weight: 1, arbitrary: fc.constantFrom(up, "nope", id, "%00", "%F0", "..%2F..") }
          ),
          fc.record(
            {
              backup_id: backup,
              paths: field(fc.array(path, { minLength: 1, maxLength: 3 })),
              mode: field(fc.constantFrom("replace", "merge")),
              safety: field(fc.boolean()),
              start: field(fc.constant(false))
            },
            { requiredKeys: ["backup_id"] }
          )
        )
        const creations = fc.record(
          {
            from_backup: backup,
            blueprint_id: field(fc.constantFrom("kept", "passing", "nope")),
            name: field(fc.constantFrom("again", "other")),
            labels: field(fc.constant({ team: "a" })),
            overrides: field(fc.constant({ save: true })),
            start: field(fc.boolean()),
            node_id: field(fc.constant("nope"))
          },
          { requiredKeys: ["from_backup"] }
        )
        const seed = freshSeed()
        const check = Effect.fnUntraced(function* (route: string, address: string, body: unknown) {
          const answer = yield* api.request("POST", address, {
            raw: JSON.stringify(body),
            headers: { authorization: `Bearer ${api.key}`, "content-type": "application/json" }
          })
          const listed = Object.keys(document.paths[route]?.post?.responses ?? {}).map(Number)
          const what = `seed ${seed}, ${address} ${JSON.stringify(body).slice(0, 500)}: ${answer.text}`
          assert.include([...listed, 404], answer.status, what)
          assert.notStrictEqual(answer.status, 500, what)
          const { status } = answer
          if (isRefusal(status)) assertError(answer, status)
          return answer
        })
        const seen = new Set<string>()
        for (const [server, body] of fc.sample(restores, { numRuns: RUNS, seed })) {
          const { json, status } = yield* check(
            "/api/servers/{server}/restore",
            `/api/servers/${server}/restore`,
            body
          )
          seen.add(`restore ${status}`)
          // Others would only be refused for it.
          if (status === 202) yield* expectStatus(api, 200, "GET", `/api/operations/${json.id}`, { headers })
        }
        const made: Array<string> = []
        for (const body of fc.sample(creations, { numRuns: RUNS, seed })) {
          const { json, status } = yield* check("/api/servers", "/api/servers", body)
          seen.add(`create ${status}`)
          if (status === 202) made.push(json.id)
        }
        for (const one of [
          "restore 202",
          "restore 404",
          "restore 422",
          "create 202",
          "create 404",
          "create 422"
        ])
          assert.isTrue(seen.has(one), `seed ${seed}: ${[...seen].join()}`)
        yield* Effect.forEach(
          made,
          (server) => expectStatus(api, 200, "DELETE", `/api/servers/${server}?force=true&purge=true`),
          { concurrency: 4 }
        )
        assert.notMatch(api.output(), /ERROR/)
        // The server has not suffered: its backup is restored once more.
        const again = yield* expectStatus(api, 202, "POST", `/api/servers/${offline}/restore`, {
          body: { backup_id: id, safety: false },
          headers
        })
        assert.strictEqual(again.json.state, "done", JSON.stringify(again.json))
      })
    )
  })
})
