import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { AuditEntry } from "../../../src/contract/domain/AuditEntry.ts"
import { chaosDefinitions } from "../../support/chaos.ts"
import { definitions } from "../../support/definitions.ts"
import { endLeftovers } from "../../support/processes.ts"
import { startService } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const ROUNDS = 4

describe("spec 6.6: kill -9 of the service", () => {
  it.live("every server has exactly one entry of its creation, and every created entry a server", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      yield* Effect.addFinalizer(() => endLeftovers(dataDir))
      const { env } = yield* definitions(chaosDefinitions)
      const start = startService({
        dataDir,
        env: {
          MUSTER_OVERCOMMIT_MEMORY: "1000",
          MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:28500-28899",
          ...env
        }
      })
      for (let round = 0; round < ROUNDS; round++) {
        const api = yield* start
        const creating = Effect.ignore(
          api.request("POST", "/api/servers", { body: { blueprint_id: "kept", name: `round-${round}` } })
        )
        yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept" }
        })
        const clients = yield* Effect.forkChild(
          Effect.forEach(Array.from({ length: 60 }), () => creating, { concurrency: 8, discard: true })
        )
        // Kills in the middle of the creations, at another commit in each round.
        yield* Effect.repeat(creating, { times: round * 2 })
        yield* api.kill("SIGKILL")
        yield* Fiber.join(clients)
      }
      const api = yield* start
      const { json: servers } = yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")
      const { json } = yield* expectStatus(api, 200, "GET", "/api/audit?action=server.create&limit=1000")
      // The response of the service.
      const entries = json as ReadonlyArray<AuditEntry>
      const done = entries.filter(({ result }) => result.status === 202).map(({ object }) => object.id)
      assert.isAtLeast(done.length, ROUNDS)
      assert.deepStrictEqual(done.toSorted(), [...servers].toSorted())
    }).pipe(Effect.scoped)
  )
})
