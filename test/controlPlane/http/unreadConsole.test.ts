import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { AuditEntry } from "../../../src/contract/domain/AuditEntry.ts"
import { SINGLE_ENTRIES } from "../../../src/controlPlane/audit/AuditLog.ts"
import { blueprintFile, softwareFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { commands, expectStatus, running } from "../../support/servers.ts"
import { assertError, options } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const service = Muster.layer(
  {
    software: { "deaf.yml": softwareFile("deaf", { invocation: "sh -c 'echo ready; exec sleep 1000'" }) },
    blueprints: { "deaf.yml": blueprintFile("deaf", "deaf") }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26800-26899" }
)

layer(service, options)("a server that does not read its console", (it) => {
  describe("spec 3.10: commands; spec 6.6", () => {
    it.effect("commands that were written in part are named, and have an entry of their own", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const key = yield* keyed("Operator", { allow: ["commands"] })
        const id = yield* running(admin, "deaf")
        // From here on, refused requests of the key share an entry for each action and status.
        const refuse = expectStatus(key, 404, "POST", "/api/servers/nothing/commands", {
          body: { commands: ["x"] }
        })
        yield* Effect.replicateEffect(refuse, SINGLE_ENTRIES, { concurrency: 16, discard: true })
        const lines = Array.from({ length: 60 }, () => "x".repeat(4000))
        const answer = yield* commands(key, id, ...lines)
        assertError(
          answer,
          409,
          /^[1-9]\d* of 60 commands were written(, and a part of the next)?; the server does not read its console$/
        )
        const { json } = yield* expectStatus(admin, 200, "GET", `/api/audit?object=${id}&actor=${key.id}`)
        // The response of the service, whose schema test/controlPlane/http/responseSchemas.test.ts checks.
        const entries = json as ReadonlyArray<AuditEntry>
        assert.deepStrictEqual(
          entries.map(({ action, repeated, request_id, result }) => [
            action,
            repeated,
            request_id,
            result.status
          ]),
          [["server.commands", undefined, answer.headers.get("x-request-id"), 409]]
        )
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
      })
    )
  })
})
