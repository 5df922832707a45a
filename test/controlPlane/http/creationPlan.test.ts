import { assert, describe, layer } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { MusterClient } from "../../../src/client/index.ts"
import { blueprintFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, expectStatus, statusOf } from "../../support/servers.ts"
import { assertError, games, keysOf, noNode, options, removed } from "./support/http.ts"

const files = {
  software: {
    ...games.software,
    "boxed.yml": JSON.stringify({
      software: {
        id: "boxed",
        name: "Boxed",
        images: { one: "example/one:1" },
        mappings: [{ default: "one" }],
        invocation: "run"
      }
    })
  },
  blueprints: {
    ...games.blueprints,
    "starting.yml": blueprintFile("starting", "game", { rest: { start: true } }),
    "boxed.yml": blueprintFile("boxed", "boxed"),
    "secret.yml": blueprintFile("secret", "game", {
      server: { configs: { "a.properties": { parser: "properties", find: { password: "hidden-value" } } } }
    })
  }
}

const plan = Effect.fnUntraced(function* (body: object, headers: Record<string, string> = {}) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "POST", "/api/servers?dry_run=true", { body, headers })).json
})

const nothingStored = Effect.gen(function* () {
  const api = yield* Muster
  assert.deepStrictEqual((yield* api.request("GET", "/api/servers")).json, [])
})

const huge = { limits: { memory_limit: 64 * 1024 * 1024 } }
const env = { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26200-26203", MUSTER_EMBEDDED_RUNTIME: "process" }

layer(Muster.layer(files, env), options)("spec 3.3", (it) => {
  describe("POST /api/servers?dry_run=true", () => {
    it.effect("shows the definition and the node, and stores nothing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [node] = (yield* api.request("GET", "/api/nodes")).json
        const made = yield* plan({
          blueprint_id: "kept",
          overrides: { limits: { memory_limit: 96 } },
          name: "a"
        })
        assert.deepStrictEqual(keysOf(made), ["candidates", "definition", "node_id", "warnings"])
        assert.strictEqual(made.node_id, node.id)
        assert.deepStrictEqual(made.warnings, [])
        const { definition } = made
        assert.deepStrictEqual(
          [
            definition.software,
            definition.version,
            definition.limits,
            definition.save,
            definition.stop_timeout
          ],
          ["game", "1.0", { memory_limit: 96 }, true, 30]
        )
        const [candidate] = made.candidates
        assert.deepStrictEqual(
          [made.candidates.length, candidate.node_id, candidate.node_name, candidate.fits],
          [1, node.id, node.name, true]
        )
        assert.deepStrictEqual([candidate.ports_free, candidate.share, candidate.reason], [4, 0, undefined])
        assert.isAbove(candidate.memory_free_bytes, 0)
        assert.isAbove(candidate.disk_free_bytes, 0)
        yield* nothingStored
      })
    )

    it.effect(
      "a server that fits on no node is 200 with the reasons; its creation is 503 with the same ones",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const [{ name }] = (yield* api.request("GET", "/api/nodes")).json
          const body = { blueprint_id: "kept", overrides: huge }
          const made = yield* plan(body)
          assert.strictEqual(made.node_id, null)
          assert.deepStrictEqual(
            [made.candidates[0].fits, made.candidates[0].reason],
            [false, "without 67108864 MiB of memory free"]
          )
          const { hint } = assertError(
            yield* api.request("POST", "/api/servers", { body }),
            503,
            "no nodes available"
          )
          assert.deepStrictEqual(made.warnings, [`no node fits: ${hint}`])
          const free = Math.floor(made.candidates[0].memory_free_bytes / 1024 / 1024)
          assert.strictEqual(
            hint,
            `1 node: 1 without 67108864 MiB of memory free (${name}; the most is ${free} MiB). Make room or add a node.`
          )
        })
    )

    it.effect("a missing engine is no lack of room", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const body = { blueprint_id: "boxed", overrides: huge }
        const made = yield* plan(body)
        assert.strictEqual(made.candidates[0].reason, "without docker; without 67108864 MiB of memory free")
        const { hint = "" } = assertError(yield* api.request("POST", "/api/servers", { body }), 503)
        assert.include(hint, "1 without docker (")
        assert.include(hint, "Start a Docker engine on a node")
        assert.notInclude(hint, "Make room")
      })
    )

    it.effect("a named node is the only candidate, also if it is drained", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [{ id }] = (yield* api.request("GET", "/api/nodes")).json
        yield* expectStatus(api, 200, "PATCH", `/api/nodes/${id}/drained`, { body: { drained: true } })
        const named = yield* plan({ blueprint_id: "kept", node_id: id })
        assert.deepStrictEqual([named.node_id, named.warnings], [id, [`the node is drained: ${id}`]])
        const other = yield* plan({ blueprint_id: "kept" })
        assert.deepStrictEqual([other.node_id, other.candidates[0].reason], [null, "drained"])
        yield* expectStatus(api, 200, "PATCH", `/api/nodes/${id}/drained`, { body: { drained: false } })
      })
    )

    it.effect("a request that is refused without the dry run is refused the same with it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [body, status] of [
          [{ blueprint_id: "nope" }, 404],
          [{ blueprint_id: "kept", node_id: "nope" }, 404],
          [{ blueprint_id: "kept", overrides: { software: "nope" } }, 422],
          [{ blueprint_id: "kept", expires_in: 1 }, 422]
        ] as const) {
          const dry = yield* api.request("POST", "/api/servers?dry_run=true", { body })
          const { request_id: _, ...refusal } = assertError(dry, status)
          const real = yield* api.request("POST", "/api/servers", { body })
          assert.deepInclude(real.json, refusal)
        }
        assertError(
          yield* api.request("POST", "/api/servers?dry_run=1", { body: { blueprint_id: "kept" } }),
          422
        )
      })
    )

    it.effect("Idempotency-Key and Prefer do not count", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = { "idempotency-key": "planned", prefer: "wait=60" }
        const path = "/api/servers?dry_run=true"
        const dry = yield* expectStatus(api, 200, "POST", path, { body: { blueprint_id: "kept" }, headers })
        assert.isNull(dry.headers.get("preference-applied"))
        assert.isNull(dry.headers.get("location"))
        yield* nothingStored
        // Another body with the same key is no conflict: the dry run has not used it.
        const { json } = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "passing" },
          headers: { "idempotency-key": "planned" }
        })
        yield* plan({ blueprint_id: "kept" }, { "idempotency-key": "planned" })
        yield* removed(json.id)
      })
    )

    it.effect("values that no other route shows stay out", () =>
      Effect.gen(function* () {
        const made = yield* plan({ blueprint_id: "secret" })
        assert.notInclude(JSON.stringify(made), "hidden-value")
      })
    )

    it.effect("the typed client has it as a method", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* Effect.provide(
          Effect.flatMap(MusterClient, ({ servers }) =>
            servers.dryRun({ payload: { blueprint_id: "kept" } })
          ),
          MusterClient.layer({ baseUrl: api.url, key: Redacted.make(api.key) })
        )
        assert.isTrue(made.candidates[0]?.fits)
      })
    )
  })

  describe("`start` of a blueprint", () => {
    it.effect("a server of a blueprint with `start: true` starts, and Prefer waits until it runs", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "starting" },
          headers: { prefer: "wait=60" }
        })
        assert.strictEqual(yield* statusOf(api, made.json.id), "running")
        yield* removed(made.json.id)
      })
    )

    it.effect("`start` of a creation wins", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "starting", start: false },
          headers: { prefer: "wait=60" }
        })
        assert.strictEqual(yield* statusOf(api, made.json.id), "offline")
        const other = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept", start: true }
        })
        yield* becomes(api, other.json.id, "running")
        yield* removed(made.json.id)
        yield* removed(other.json.id)
      })
    )

    it.effect("only a blueprint whose file has `start` shows it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json } = yield* expectStatus(api, 200, "GET", "/api/blueprints/starting")
        assert.strictEqual(json.start, true)
        const kept = yield* expectStatus(api, 200, "GET", "/api/blueprints/kept")
        assert.deepStrictEqual(keysOf(kept.json), ["annotations", "metadata", "save", "server", "state"])
      })
    )
  })
})

layer(Muster.layer(files, noNode), options)("spec 3.3: without a node", (it) => {
  it.effect("a dry run is 200 and says that no node has registered", () =>
    Effect.gen(function* () {
      const made = yield* plan({ blueprint_id: "kept" })
      assert.deepStrictEqual(
        [made.node_id, made.candidates, made.warnings],
        [null, [], ["no node fits: No node has registered yet; start one with `muster node`."]]
      )
    })
  )
})
