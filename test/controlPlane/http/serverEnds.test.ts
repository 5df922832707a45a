/** What is left of a server that was deleted: the audit entry and the 404 of its id. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { AuditEntry } from "../../../src/contract/domain/AuditEntry.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, commands, expectStatus, installed, powered, running } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

/** Returns the reasons of the entries with which the service deleted a server. */
const entriesOf = Effect.fnUntraced(function* (id: string) {
  const api = yield* Muster
  const { json } = yield* expectStatus(api, 200, "GET", `/api/audit?object=${id}&action=server.delete`)
  // The response of the service, whose schema test/controlPlane/http/responseSchemas.test.ts checks.
  return (json as ReadonlyArray<AuditEntry>).map(({ actor, reason }) => [actor.name, reason])
})

layer(service(), options)("End of a server", (it) => {
  describe("docs/concepts.md, saved server", () => {
    it.effect("for each way in which a server ends, audit log and 404 say when and why", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stop = (id: string) => powered(api, id, "stop")
        const ends: ReadonlyArray<readonly [(id: string) => Effect.Effect<unknown, unknown>, string]> = [
          [stop, "it is not saved, and was stopped"],
          [(id) => powered(api, id, "kill"), "it is not saved, and its process ended"],
          [(id) => commands(api, id, "exit 3"), "it is not saved, and crashed: exit code 3"],
          [
            (id) => expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { expires_in: 10 } }),
            "it had expired"
          ]
        ]
        yield* Effect.forEach(
          ends,
          ([end, reason]) =>
            Effect.gen(function* () {
              const id = yield* running(api, "passing", { name: "round" })
              const before = Date.now()
              yield* end(id)
              yield* becomes(api, id, "gone")
              const { detail = "", hint } = assertError(
                yield* api.request("GET", `/api/servers/${id}/status`),
                404
              )
              const [, at = ""] = /^server not found: \w+: it was deleted at (\S+): /.exec(detail) ?? []
              assert.isAtLeast(Date.parse(at), before, detail)
              assert.isTrue(detail.endsWith(`: ${reason}`), detail)
              assert.include(hint, id)
              assert.strictEqual(/overrides\.save/.test(hint ?? ""), reason.startsWith("it is not saved"))
              assert.deepStrictEqual(yield* entriesOf(id), [["service", reason]])
            }),
          { concurrency: "unbounded" }
        )
        assertError(
          yield* api.request("GET", "/api/servers/round"),
          404,
          /^server not found: round: the server \w{12} of this name was deleted at /
        )
      })
    )

    it.effect(
      "a deletion by a caller has the entry of the request only, and its 404 says so everywhere",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "passing")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          assert.deepStrictEqual(yield* entriesOf(id), [["APP_ADMIN_API_KEY", undefined]])
          const why = /: it was deleted at \S+: a caller deleted it$/
          const { hint } = assertError(yield* api.request("GET", `/api/servers/${id}`), 404, why)
          assert.notInclude(hint, "save")
          assertError(
            yield* api.request("POST", `/api/servers/${id}/power`, { body: { action: "start" } }),
            404,
            why
          )
          const { json } = yield* expectStatus(api, 200, "POST", "/api/servers/power", {
            body: { selector: { ids: [id] }, action: "start" }
          })
          assert.match(json[id].detail, why)
        })
    )

    it.effect("a key reads only the ends of servers that it could read", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "passing", { labels: { team: "a" } })
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        const detailFor = Effect.fnUntraced(function* (grant: Parameters<typeof keyed>[1]) {
          const key = yield* keyed("Operator", grant)
          return assertError(yield* key.request("GET", `/api/servers/${id}/status`), 404).detail
        })
        for (const grant of [{ labels: { team: "a" } }, { servers: [id] }, { blueprints: ["passing"] }]) {
          assert.include(yield* detailFor(grant), "it was deleted at")
        }
        for (const grant of [{ labels: { team: "b" } }, { blueprints: ["kept"] }]) {
          assert.strictEqual(yield* detailFor(grant), `server not found: ${id}`)
        }
      })
    )
  })
})
