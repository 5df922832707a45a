import { readdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { restartable } from "../../support/faults/index.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { endLeftovers } from "../../support/processes.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, expectStatus, power, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const content = (id: string) => `/api/servers/${id}/files/content?path=/level.dat`

/** A service with one remote node; both can be killed. */
const scene = Effect.fnUntraced(function* (ports: string) {
  const { env } = yield* definitions(files)
  const data = yield* temporaryFolder
  const service = yield* restartable(
    "the service",
    startService({
      dataDir: join(data, "service"),
      env: { ...alone, ...env, MUSTER_PORT: String(yield* freePort) }
    })
  )
  const api = yield* service.current
  const { key } = yield* nodeKey(api, "n1")
  const dataDir = join(data, "n1")
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const node = yield* restartable(
    "the daemon",
    startNode({
      control: api.url,
      key,
      id: "n1",
      dataDir,
      env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${ports}` }
    })
  )
  yield* nodeIs(api, "n1", true)
  return { dataDir, node, service }
})

/** A server that has run, with a file. */
const played = Effect.fnUntraced(function* (api: Service) {
  const id = yield* running(api, "kept")
  assert.strictEqual((yield* api.request("PUT", content(id), { raw: id })).status, 201)
  return id
})

/** Where a server is: on record, kept, or gone. */
const placeOf = Effect.fnUntraced(function* (api: Service, id: string) {
  const { status } = yield* api.request("GET", `/api/servers/${id}`)
  if (status === 200) return "live"
  const { json } = yield* expectStatus(api, 200, "GET", `/api/servers?deleted=true&ids_only=true&q=${id}`)
  return json.length === 1 ? "kept" : "gone"
})

/** Undeletes a server that is kept, starts it, and reads its file. */
const comesBack = Effect.fnUntraced(function* (api: Service, id: string) {
  if ((yield* placeOf(api, id)) === "kept")
    yield* eventually(api.request("POST", `/api/servers/${id}/undelete`), ({ status }) => status === 202)
  yield* eventually(
    Effect.map(api.request("GET", `/api/servers/${id}/status`), ({ json }) => json.status),
    (status) => status === "offline" || status === "running"
  )
  // A daemon that has just started listens at another port, which the service learns from its registration.
  yield* eventually(power(api, id, "start"), ({ status }) => status === 200)
  yield* becomes(api, id, "running")
  assert.strictEqual((yield* expectStatus(api, 200, "GET", content(id))).text, id)
})

/** The folders of a server on its node. */
const foldersOf = (dataDir: string, id: string) =>
  readdirSync(join(dataDir, "node", "servers")).filter(
    (name) => name.includes(id) && !name.startsWith(".removed-")
  )

/** Milliseconds after a request at which a process is killed. */
const moments = [0, 6, 15, 40]

describe("spec 3.19: kill -9 at any step", () => {
  it.live.each(["service", "node"] as const)(
    "of the %s leaves a server on record or kept, with its files, never half",
    (target) =>
      Effect.gen(function* () {
        const { dataDir, node, service } = yield* scene(target === "service" ? "28660-28669" : "28670-28679")
        const { killed } = target === "service" ? service : node
        const path = (id: string) => `/api/servers/${id}`
        for (const millis of moments) {
          const id = yield* played(yield* service.current)
          for (const [method, suffix] of [
            ["DELETE", ""],
            ["POST", "/undelete"]
          ] as const) {
            const api = yield* service.current
            const request = Effect.ignore(api.request(method, `${path(id)}${suffix}`))
            const fault = Effect.delay(killed.inject, millis)
            yield* Effect.all([request, fault], { concurrency: "unbounded" })
            yield* killed.heal
            const now = yield* service.current
            yield* nodeIs(now, "n1", true)
            assert.include(["live", "kept"], yield* placeOf(now, id), `${method} ${millis} ms`)
            if (method === "DELETE" && (yield* placeOf(now, id)) === "live")
              yield* eventually(
                now.request("DELETE", path(id)),
                ({ status }) => status === 200 || status === 404
              )
          }
          const now = yield* service.current
          yield* comesBack(now, id)
          assert.deepStrictEqual(foldersOf(dataDir, id), [id])
          yield* eventually(now.request("DELETE", `${path(id)}?purge=true`), ({ status }) => status === 200)
          yield* eventually(() => foldersOf(dataDir, id).length === 0)
        }
      }).pipe(Effect.scoped),
    300_000
  )

  it.live(
    "a server that is deleted while its node is away is kept once the node returns, and undelete waits for the node",
    () =>
      Effect.gen(function* () {
        const { dataDir, node, service } = yield* scene("28680-28689")
        const api = yield* service.current
        const [deleted, purged] = [yield* played(api), yield* played(api)]
        yield* node.killed.inject
        yield* nodeIs(api, "n1", false)
        const path = `/api/servers/${deleted}`
        assert.strictEqual((yield* api.request("DELETE", path)).status, 503)
        yield* expectStatus(api, 200, "DELETE", `${path}?force=true`)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${purged}?force=true&purge=true`)
        assert.strictEqual(yield* placeOf(api, deleted), "kept")
        assert.strictEqual((yield* api.request("POST", `${path}/undelete`)).status, 503)
        yield* node.killed.heal
        yield* nodeIs(api, "n1", true)
        yield* eventually(() => foldersOf(dataDir, deleted).every((name) => name.startsWith(".kept-")))
        yield* eventually(() => foldersOf(dataDir, purged).length === 0)
        yield* comesBack(api, deleted)
        // A kept server does not hold its node, and goes with the record of it.
        yield* expectStatus(api, 200, "DELETE", path)
        yield* node.killed.inject
        yield* nodeIs(api, "n1", false)
        yield* expectStatus(api, 200, "DELETE", "/api/nodes/n1")
        assert.strictEqual(yield* placeOf(api, deleted), "gone")
        assert.strictEqual((yield* api.request("POST", `${path}/undelete`)).status, 404)
      }).pipe(Effect.scoped),
    120_000
  )
})
