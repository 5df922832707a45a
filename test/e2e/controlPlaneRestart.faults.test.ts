import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Ref } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { adminKey, requestTo, startService } from "../support/Service.ts"
import { expectStatus, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const NODES = ["a", "b", "c"]
/** The promise: a request waits for nodes for 5 s at most, and a second for the rest. */
const LONGEST_MILLIS = 6000

const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": "echo ready\nwhile read line; do :; done" } })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game", { save: true }) }
}

describe("docs/running.md, Restart the control plane", () => {
  it.live(
    "creations and power actions of a client succeed across restarts, as soon as the service listens",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const port = yield* freePort
        const dataDir = `${yield* temporaryFolder}/data`
        const settings = { dataDir, env: { ...alone, ...env, MUSTER_PORT: String(port) } }
        let api = yield* startService(settings)
        for (const [at, id] of NODES.entries()) {
          const { key } = yield* nodeKey(api, id)
          yield* startNode({
            control: api.url,
            key,
            id,
            // The next heartbeat is too late to matter.
            env: {
              MUSTER_NODE_HEARTBEAT: "25",
              MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${28_300 + at * 100}-${28_399 + at * 100}`
            }
          })
        }
        for (const id of NODES) yield* nodeIs(api, id, true)
        const server = yield* running(api, "kept")

        const send = requestTo(api.url, adminKey)
        const done = yield* Ref.make(false)
        const outcomes: Array<{ status: number; text: string; millis: number }> = []
        const load = Effect.gen(function* () {
          for (let n = 0; !(yield* Ref.get(done)); n++) {
            const since = yield* Clock.currentTimeMillis
            const answer = yield* Effect.option(
              n % 2 === 0
                ? send("POST", "/api/servers", { body: { blueprint_id: "kept" } })
                : send("POST", `/api/servers/${server}/power`, { body: { action: "start" } })
            )
            // Without a listener there is no answer.
            if (answer._tag === "None") yield* Effect.sleep("5 millis")
            else {
              const { status, text } = answer.value
              outcomes.push({ status, text, millis: (yield* Clock.currentTimeMillis) - since })
            }
          }
        })
        const client = yield* Effect.forkChild(load)
        for (let round = 0; round < 3; round++) {
          yield* api.kill("SIGTERM")
          const before = outcomes.length
          api = yield* startService(settings)
          yield* eventually(
            () => outcomes.slice(before).filter(({ status }) => status < 300).length,
            (count) => count >= 4
          )
          for (const id of NODES) yield* nodeIs(api, id, true)
          assert.deepStrictEqual(
            (yield* expectStatus(api, 200, "GET", "/api/nodes")).json.length,
            NODES.length
          )
        }
        yield* Ref.set(done, true)
        yield* Fiber.join(client)
        console.info(
          `longest of ${outcomes.length} responses: ${Math.max(...outcomes.map(({ millis }) => millis))} ms`
        )
        assert.deepStrictEqual(
          outcomes.filter(({ millis, status }) => status >= 300 || millis > LONGEST_MILLIS),
          []
        )
      }).pipe(Effect.scoped),
    { timeout: 120_000 }
  )
})
