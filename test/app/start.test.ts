/** The start of a service with an embedded node whose host takes long to probe. */
import { createServer, type ServerResponse } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { adminKey, requestTo, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** A container engine that holds the first request back; returns its socket, and that request. */
const slowEngine = Effect.gen(function* () {
  const socket = join(yield* temporaryFolder, "engine.sock")
  const asked = yield* Deferred.make<ServerResponse>()
  yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((_request, response) => {
        if (!Deferred.doneUnsafe(asked, Effect.succeed(response))) response.writeHead(503).end()
      }).listen(socket, () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  return { socket, asked: Deferred.await(asked) }
})

describe("spec 1: `/healthz` is the liveness of the process", () => {
  it.live("it answers while the node starts; requests about nodes wait until the node is connected", () =>
    Effect.gen(function* () {
      const engine = yield* slowEngine
      const port = yield* freePort
      const starting = yield* Effect.forkScoped(
        startService({
          env: {
            MUSTER_PORT: String(port),
            MUSTER_DOCKER_SOCKET: engine.socket,
            MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20900-20909"
          }
        })
      )
      const request = requestTo(`http://127.0.0.1:${port}`, adminKey)
      const held = yield* engine.asked
      yield* eventually(
        request("GET", "/healthz").pipe(
          Effect.map(({ status }) => status),
          Effect.orElseSucceed(() => 0)
        ),
        (status) => status === 200
      )
      const nodes = yield* Effect.forkScoped(request("GET", "/api/nodes"))
      assert.strictEqual((yield* request("GET", "/api/system")).status, 200)
      assert.strictEqual((yield* request("GET", "/dashboard")).status, 200)
      const { json, status } = yield* request("GET", "/readyz")
      assert.deepStrictEqual([status, json.detail], [503, "the embedded node of this service is starting"])
      assert.strictEqual((yield* request("GET", "/metrics")).status, 200)
      assert.isFalse(held.destroyed, "the engine is still being asked")
      assert.isUndefined(starting.pollUnsafe(), "the service says that it listens once the node is connected")
      assert.isUndefined(nodes.pollUnsafe())
      held.writeHead(503).end()
      assert.lengthOf((yield* Fiber.join(nodes)).json, 1)
      yield* Fiber.join(starting)
      assert.strictEqual((yield* request("GET", "/readyz")).status, 200)
    })
  )
})
