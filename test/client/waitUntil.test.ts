import type { ServerResponse } from "node:http"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { serverExample } from "../../src/contract/api/examples.ts"
import type { ServerStatus } from "../../src/contract/domain/ServerStatus.ts"
import { games, options, removed } from "../controlPlane/http/support/http.ts"
import { blueprintFile, softwareFile } from "../support/definitions.ts"
import { Muster } from "../support/Muster.ts"
import { create, expectStatus, powered } from "../support/servers.ts"
import { clientOf, scripted } from "./support.ts"

const withBroken = {
  software: { ...games.software, "broken.yml": softwareFile("broken", { install: { script: "exit 3" } }) },
  blueprints: { ...games.blueprints, "broken.yml": blueprintFile("broken", "broken") }
}

layer(Muster.layer(withBroken), options)("the client: waitUntil", (it) => {
  it.effect("waitUntil returns the server once it is in the state", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const muster = yield* clientOf(api.url, api.key)
      const id = yield* create(api, "kept")
      assert.strictEqual((yield* muster.waitUntil(id, "installed")).install?.phase, "ready")
      const running = yield* Effect.forkChild(muster.waitUntil(id, "running", { include: ["labels"] }))
      yield* powered(api, id, "start")
      const { labels, status } = yield* Fiber.join(running)
      assert.deepStrictEqual([status, labels], ["running", {}])
      yield* powered(api, id, "stop")
      assert.strictEqual((yield* muster.waitUntil(id, "offline")).status, "offline")
      yield* removed(id)
    })
  )

  it.effect(
    "a server that cannot reach the state is a Conflict, and one that does not exist is NotFound",
    () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const muster = yield* clientOf(api.url, api.key)
        const id = yield* create(api, "broken", { start: true })
        const conflict = yield* Effect.flip(muster.waitUntil(id, "running"))
        assert.strictEqual(conflict._tag, "Conflict")
        assert.include(
          conflict.message,
          `server is not running: ${id}: install failed: install script exited with 3`
        )
        yield* removed(id)
        assert.strictEqual((yield* Effect.flip(muster.waitUntil(id, "offline")))._tag, "NotFound")
      })
  )

  it.effect("after the timeout, WaitTimedOut has the server as last seen", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const muster = yield* clientOf(api.url, api.key)
      const id = yield* create(api, "endless")
      const error = yield* Effect.flip(muster.waitUntil(id, "running", { timeout: "1200 millis" }))
      assert.strictEqual(error._tag, "WaitTimedOut")
      assert.strictEqual(error.message, `server is not running in time: ${id}; it is installing`)
      yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?force=true`)
    })
  )
})

describe("the client: waitUntil for longer than one request", () => {
  const server =
    (status: ServerStatus, headers: Readonly<Record<string, string>>) => (response: ServerResponse) =>
      response
        .writeHead(200, { "content-type": "application/json", ...headers })
        .end(JSON.stringify({ ...serverExample, status }))

  it.live("requests are repeated until the state is reached, also after failures", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* scripted(
        server("installing", { "x-muster-timed-out": "true" }),
        (response) => response.writeHead(502, { "content-type": "text/html" }).end("<h1>no upstream</h1>"),
        (response) => response.destroy(),
        server("running", {})
      )
      const muster = yield* clientOf(url)
      const { status } = yield* muster.waitUntil("k7f3m9q2x8ab", "running", { timeout: "10 minutes" })
      assert.strictEqual(status, "running")
      assert.deepStrictEqual(
        asked.map((query) => new URLSearchParams(query).get("timeout")),
        ["60", "60", "60", "60"]
      )
    }).pipe(Effect.scoped)
  )

  it.live("a server is read once more if its last request breaks as the time ends", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* scripted(
        (response) => response.destroy(),
        server("offline", { "x-muster-timed-out": "true" })
      )
      const muster = yield* clientOf(url)
      const error = yield* Effect.flip(muster.waitUntil("k7f3m9q2x8ab", "running", { timeout: 0 }))
      assert.strictEqual(error.message, "server is not running in time: k7f3m9q2x8ab; it is offline")
      assert.strictEqual(asked.length, 2)
    }).pipe(Effect.scoped)
  )
})
