import { randomBytes } from "node:crypto"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { isPublic } from "../../../src/contract/domain/Journal.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { readDatabase } from "../../support/database.ts"
import { stalledSubscriber, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { type Service, startService } from "../../support/Service.ts"
import { allocations, definition, record } from "../../support/samples.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const SERVERS = 4_000
/** Ids of this length make events so large that a few thousand exceed any socket buffer. */
const LONG = "0".repeat(2_000)
const PER_WRITE = 1000
const NODE = "node-of-the-lost"

/** A data folder with servers that are missing on their node, so that the start publishes many events. */
const seeded = Effect.gen(function* () {
  const dataDir = join(yield* temporaryFolder, "data")
  yield* Effect.sync(() => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 })
    writeFileSync(join(dataDir, "node.id"), `${NODE}\n`)
  })
  const lost = { ...definition({ save: false }), limits: {} }
  const insert = Effect.gen(function* () {
    const store = yield* Store
    const servers = yield* ServerRepo
    for (let from = 0; from < SERVERS; from += PER_WRITE) {
      const records = Array.from({ length: PER_WRITE }, (_, index) =>
        record({
          id: `${serverId(randomBytes(16))}${LONG}`,
          node_id: NODE,
          allocations: allocations(10_000 + from + index),
          definition: lost,
          status: "running"
        })
      )
      yield* store.write(Effect.forEach(records, (it) => servers.insert(it), { discard: true }))
    }
  })
  yield* Effect.provide(insert, layerSqlite({ filename: join(dataDir, "muster.db") }))
  return dataDir
})

const subscribers = (api: Service) =>
  Effect.map(expectStatus(api, 200, "GET", "/metrics"), ({ text }) =>
    Number(/^muster_event_subscribers (\d+)/m.exec(text)?.[1])
  )

describe("spec 9.6: slow or stuck subscriber", () => {
  it.live(
    "spec 5.2: a slow subscriber is disconnected; the others receive every event, and the service works",
    () =>
      Effect.gen(function* () {
        const api = yield* startService({ dataDir: yield* seeded })
        const stalled = yield* stalledSubscriber(api)
        const attentive = yield* subscribe(api, "/api/events?cursor=0")
        yield* eventually(
          Effect.sync(() => attentive.events().length),
          (count) => count === 2 * SERVERS,
          "60 seconds"
        )
        // Each server publishes offline, then deleted, once, as in the journal.
        const { journal } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(
          attentive.events().map((event) => event.Cursor),
          journal.filter(({ change }) => isPublic(change)).map(({ cursor }) => cursor)
        )
        const deleted = attentive.events().filter((event) => event.Topic === "deleted")
        assert.strictEqual(new Set(deleted.map((event) => event.Data.server_id)).size, SERVERS)
        assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/servers")).json, [])
        yield* eventually(subscribers(api), (count) => count === 1)
        assert.isFalse(attentive.ended())

        let received = ""
        let over = false
        yield* Effect.sync(() => {
          stalled.on("data", (chunk) => {
            received += chunk.toString()
          })
          stalled.once("close", () => {
            over = true
          })
          stalled.resume()
        })
        yield* eventually(
          Effect.sync(() => over),
          (closed) => closed
        )
        assert.match(received, /^HTTP\/1\.1 200 OK\r\n/)
        assert.isBelow(received.split("\ndata: ").length, 2 * SERVERS)
      }).pipe(Effect.scoped),
    120_000
  )
})
