import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { becomes, expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

describe("tokens of nodes: several replicas", () => {
  it.live(
    "replicas with one secret can call a node; a replica with another secret refuses to start and gives a hint",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        yield* makeSimulatedNode({
          id: "n1",
          key,
          control: [one.url],
          ports: "31100-31199",
          heartbeat: "1 second"
        })
        const { id } = (yield* expectStatus(one, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept" }
        })).json
        yield* becomes(one, id, "offline")
        for (const api of [one, other]) {
          yield* eventually(api.request("GET", `/api/servers/${id}/stats`), (answer) => answer.status === 200)
        }
        const dataDir = join(yield* temporaryFolder, "data")
        const ended = yield* muster(["serve"], {
          ...alone,
          MUSTER_DATA_DIR: dataDir,
          MUSTER_DATABASE_URL: set.url,
          MUSTER_DATABASE_TIMEOUT: "5000",
          MUSTER_PORT: "0",
          MUSTER_LOG_LEVEL: "error"
        })
        assert.strictEqual(ended.code, 1)
        assert.match(
          ended.stderr,
          /^another service on this database has another secret \([0-9a-f]{16}, here [0-9a-f]{16}\): set MUSTER_SECRET_FILE .*\n$/
        )
        // The other replicas are not affected.
        yield* expectStatus(one, 200, "GET", `/api/servers/${id}/stats`)
      }).pipe(Effect.scoped)
  )
})
