import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { tcpProxy } from "../support/faults/index.ts"
import { alone, connectedNode, freePort, nodeIs } from "../support/nodes.ts"
import { eventually, startService } from "../support/Service.ts"
describe("idle", () => {
  it.live("swallowed", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions({ software: { "game.yml": softwareFile("game") }, blueprints: { "kept.yml": blueprintFile("kept", "game") } })
      const api = yield* startService({ env: { ...alone, ...env } })
      const port = yield* freePort
      const proxy = yield* tcpProxy(port)
      yield* connectedNode(api, "idle", { env: { MUSTER_NODE_PORT: String(port), MUSTER_NODE_URL: `http://127.0.0.1:${proxy.port}` } })
      yield* proxy.swallowed.inject
      const from = performance.now()
      const seen = yield* eventually(api.request("GET", "/api/nodes/idle"), (a) => a.json.unreachable !== undefined, "90 seconds")
      console.log("unreachable after", (performance.now() - from) / 1000, seen.json.unreachable)
      yield* proxy.swallowed.heal
      const healed = performance.now()
      yield* nodeIs(api, "idle", true)
      console.log("back after", (performance.now() - healed) / 1000)
      assert.ok(true)
    }).pipe(Effect.scoped), 150_000
  )
})
