import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Redacted, Stream } from "effect"
import {
  Conflict,
  Forbidden,
  InvalidRequest,
  MusterClient,
  NotFound,
  type ServerEvent,
  Unauthorized,
  UpgradeRequired
} from "../../src/client/index.ts"
import { NodeId, ServerId } from "../../src/contract/domain/Id.ts"
import { options, service } from "../controlPlane/http/support/http.ts"
import { eventually } from "../support/eventually.ts"
import { makeKey } from "../support/keys.ts"
import { Muster } from "../support/Muster.ts"

const clientWith = (key?: string) =>
  Effect.flatMap(Muster, (api) =>
    Effect.provide(MusterClient, MusterClient.layer({ baseUrl: api.url, key: Redacted.make(key ?? api.key) }))
  )

layer(service(), options)("the typed client", (it) => {
  it.effect("the client lists nodes, blueprints and the system", () =>
    Effect.gen(function* () {
      const client = yield* clientWith()
      const nodes = yield* client.nodes.list()
      assert.strictEqual(nodes.length, 1)
      const ids = yield* client.nodes.list({ query: { ids_only: true } })
      const node = yield* client.nodes.get({ params: { node: NodeId.make(String(ids[0])) } })
      assert.deepStrictEqual([node.id, node.connected], [ids[0], true])
      const { meta, data } = yield* client.blueprints.list({ query: { limit: "2" } })
      assert.deepStrictEqual(meta.pagination, { total: 3, per_page: 2, current_page: 1, total_pages: 2 })
      assert.deepStrictEqual(
        data.map((blueprint) => blueprint.metadata.id),
        ["endless", "kept"]
      )
      assert.strictEqual((yield* client.system.info()).system.os_type, "linux")
      assert.strictEqual(yield* client.blueprints.reload(), undefined)
      assert.deepStrictEqual(yield* client.healthz(), { status: "ok" })
      assert.match(yield* client.banner(), /^<!doctype html>/)
      assert.match(yield* client.metrics.page(), /^# HELP/)
    })
  )

  it.effect("a request that the contract does not allow is refused in the words of the service, unsent", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const client = yield* clientWith()
      for (const [wrong, detail] of [
        [{ labels: { "bad key!": "a" } }, /^body field labels\["bad key!"\]: Expected a label key \(/],
        [{ name: "x".repeat(65) }, /^body field name: Expected /],
        [{ expires_in: 1 }, /^body field expires_in: Expected a value between 10 and 31536000$/]
      ] as const) {
        const body = { blueprint_id: "kept", ...wrong }
        const refused = yield* Effect.flip(client.servers.create({ payload: body }))
        assert.instanceOf(refused, InvalidRequest)
        assert.match(refused.detail, detail)
        assert.strictEqual(refused.detail, (yield* api.request("POST", "/api/servers", { body })).json.detail)
      }
    })
  )

  it.effect("the client creates, controls and deletes a server", () =>
    Effect.gen(function* () {
      const client = yield* clientWith()
      const overrides = { limits: { memory_limit: 80 }, env: { A: "b" } }
      const create = client.servers.create({
        headers: { "idempotency-key": "once" },
        payload: { blueprint_id: "kept", overrides, start: true }
      })
      const made = yield* create
      assert.deepStrictEqual(yield* create, made)
      assert.deepStrictEqual(made.overrides, overrides)
      const params = { server: made.id }
      yield* eventually(client.servers.status({ params }), ({ status }) => status === "running")
      const full = yield* client.servers.get({ params, query: { include: "status,limits" } })
      assert.deepInclude(full, { status: "running", limits: { memory_limit: 80 } })
      assert.strictEqual((yield* client.servers.stats({ params })).state, "running")
      yield* client.servers.commands({ params, payload: { commands: ["say hi"] } })
      yield* eventually(
        client.servers.logs({ params, query: { size: "1" } }),
        ({ data }) => data[0] === "got say hi"
      )
      yield* client.servers.power({ params, payload: { action: "stop", wait_seconds: 10 } })
      yield* eventually(client.servers.status({ params }), ({ status }) => status === "offline")
      assert.strictEqual((yield* client.servers.install({ params })).phase, "ready")
      yield* client.servers.remove({ params })
      assert.deepStrictEqual(yield* client.servers.list({ query: { ids_only: true } }), [])
    })
  )

  it.effect("a call fails with the error classes of the contract", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const client = yield* clientWith()
      const missing = yield* Effect.flip(client.servers.get({ params: { server: ServerId.make("nope") } }))
      assert.instanceOf(missing, NotFound)
      assert.strictEqual(missing._tag, "NotFound")
      assert.deepInclude(
        { ...missing },
        { code: "404", status: "Not Found", detail: "server not found: nope" }
      )
      assert.isNotEmpty(missing.request_id)
      const caught = yield* client.blueprints
        .get({ params: { blueprint: "nope" } })
        .pipe(Effect.catchTag("NotFound", (error) => Effect.succeed(error.detail)))
      assert.strictEqual(caught, "blueprint not found: nope")

      const payload = { blueprint_id: "kept", overrides: { software: "nope" } }
      const invalid = yield* Effect.flip(client.servers.create({ payload }))
      assert.instanceOf(invalid, InvalidRequest)
      assert.strictEqual(invalid.detail, "software is not defined: nope")

      const made = yield* client.servers.create({ payload: { blueprint_id: "endless" } })
      const params = { server: made.id }
      const conflict = yield* Effect.flip(client.servers.reinstall({ params }))
      assert.instanceOf(conflict, Conflict)
      const kept = { definition: "kept" } as const
      assert.instanceOf(yield* Effect.flip(client.servers.reinstall({ params, payload: kept })), Conflict)
      yield* client.servers.remove({ params, query: { force: true } })

      assert.instanceOf(yield* Effect.flip(client.events.websocket()), UpgradeRequired)
      const withWrongKey = yield* clientWith("wrong")
      assert.instanceOf(yield* Effect.flip(withWrongKey.nodes.list()), Unauthorized)
      const { key } = yield* makeKey(api.dataDir, "m", "Metrics")
      const metrics = yield* clientWith(key)
      assert.instanceOf(yield* Effect.flip(metrics.nodes.list()), Forbidden)
      assert.match(yield* metrics.metrics.page(), /^# HELP/)
    })
  )

  describe("spec 5.3: the event stream", () => {
    it.effect("the stream of all servers has typed events", () =>
      Effect.gen(function* () {
        const client = yield* clientWith()
        const received: Array<ServerEvent> = []
        const stream = yield* client.events.sse({ query: { blueprint_id: "kept" } })
        const reading = yield* stream.pipe(
          Stream.takeUntil((event) => event.Topic === "deleted"),
          Stream.runForEach((event) => Effect.sync(() => received.push(event))),
          Effect.forkChild
        )
        const { id } = yield* client.servers.create({ payload: { blueprint_id: "kept" } })
        const params = { server: id }
        yield* eventually(client.servers.status({ params }), ({ status }) => status === "offline")
        yield* client.servers.remove({ params })
        yield* Fiber.join(reading)
        assert.deepStrictEqual(received, [
          { Topic: "status", Data: { server_id: id, payload: "installing" } },
          { Topic: "status", Data: { server_id: id, payload: "offline" } },
          { Topic: "deleted", Data: { server_id: id, payload: null } }
        ])
      })
    )

    it.effect("the stream of one server begins at a cursor", () =>
      Effect.gen(function* () {
        const client = yield* clientWith()
        const made = yield* client.servers.create({ payload: { blueprint_id: "passing" } })
        const params = { server: made.id }
        yield* eventually(client.servers.status({ params }), ({ status }) => status === "offline")
        const stream = yield* client.servers.events({ params, query: { cursor: "0" } })
        const events = yield* stream.pipe(Stream.take(2), Stream.runCollect)
        assert.deepStrictEqual(
          events.map((event) => event.Data),
          [
            { server_id: made.id, payload: "installing" },
            { server_id: made.id, payload: "offline" }
          ]
        )
        yield* client.servers.remove({ params })
        const gone = yield* Effect.flip(client.servers.events({ params }))
        assert.instanceOf(gone, NotFound)
      })
    )
  })
})
