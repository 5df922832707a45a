import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Right } from "../../../src/contract/domain/Key.ts"
import { muster } from "../../support/command.ts"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus, installed } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const every = { allow: Right.literals }

const post = (name: string, limits: object) =>
  Effect.flatMap(Muster, (admin) => admin.request("POST", "/api/quotas", { body: { name, ...limits } }))

layer(service(), options)("quotas that keys share", (it) => {
  describe("spec 6.4: quotas that keys share", () => {
    it.effect("the servers of all keys of a quota count together, also those of a revoked key", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        assert.strictEqual((yield* post("team-a", { max_servers: 3, max_memory: 300 })).status, 201)
        const one = yield* keyed("Operator", { ...every, quota: "team-a", max_servers: 2 })
        const other = yield* keyed("Operator", { ...every, quota: "team-a" })
        const make = (key: typeof one, memory_limit: number) =>
          key.request("POST", "/api/servers", {
            body: { blueprint_id: "kept", overrides: { limits: { memory_limit } } }
          })
        const { json: first } = yield* make(one, 100)
        const { json: second } = yield* make(other, 100)
        assertError(
          yield* make(other, 101),
          403,
          "quota team-a of the API key: at most 300 MiB of memory (max_memory): 200 MiB in use, 101 MiB requested"
        )
        assertError(yield* make(other, 0), 403, /; the server has no limits.memory_limit$/)
        assert.strictEqual((yield* make(one, 50)).status, 202)
        assertError(yield* make(one, 1), 403, /^quota of the API key: at most 2 servers/)
        const full = "quota team-a of the API key: at most 3 servers (max_servers): 3 exist"
        assertError(yield* make(other, 1), 403, full)
        const { json: own } = yield* expectStatus(one, 200, "GET", "/api/keys/self")
        const used = { servers: 3, memory: 250, cpu: 0, disk: 0 }
        assert.deepInclude(own, { max_servers: 2, used: { ...used, servers: 2, memory: 150 } })
        assert.deepInclude(own.quota, { name: "team-a", max_servers: 3, max_memory: 300, used })
        yield* expectStatus(admin, 200, "DELETE", `/api/keys/${one.id}`)
        assertError(yield* make(other, 1), 403, full)
        // A key of the quota may raise the server of another one, within the quota.
        const raise = (id: string, limits: object) =>
          other.request("PATCH", `/api/servers/${id}`, { body: { overrides: { limits } } })
        yield* expectStatus(admin, 200, "GET", `/api/servers/${first.id}?wait=offline`)
        assertError(
          yield* raise(first.id, { memory_limit: 151 }),
          403,
          /: 150 MiB in use, 151 MiB requested$/
        )
        yield* expectStatus(other, 200, "PATCH", `/api/servers/${first.id}`, {
          body: { overrides: { limits: { memory_limit: 150 } } }
        })
        const foreign = yield* create(admin, "kept", { overrides: { limits: { memory_limit: 10 } } })
        assertError(yield* raise(foreign, { memory_limit: 11 }), 403, /^quota team-a .*which another key has/)
        assertError(
          yield* raise(second.id, { swap: 1 }),
          403,
          /^quota team-a of the API key: at most 300 MiB/
        )
        const { json: listed } = yield* expectStatus(admin, 200, "GET", "/api/quotas")
        assert.deepInclude(listed[0], { name: "team-a", used: { ...used, memory: 300 } })
      })
    )

    it.effect(
      "CPU and disk count by the limits of the servers, at least 1 % each; a change applies at once",
      () =>
        Effect.gen(function* () {
          const admin = yield* Muster
          yield* post("team-b", { max_cpu: 2, max_disk: 100 })
          const key = yield* keyed("Operator", { ...every, quota: "team-b" })
          const make = (limits: object) =>
            key.request("POST", "/api/servers", { body: { blueprint_id: "kept", overrides: { limits } } })
          assertError(
            yield* make({ disk_space: 1 }),
            403,
            /at most 2 % of CPU \(max_cpu\); the server has no/
          )
          assertError(
            yield* make({ cpu_limit: 1 }),
            403,
            /at most 100 MB of disk \(max_disk\); the server has no/
          )
          const tiny = { cpu_limit: 1e-9, disk_space: 30 }
          for (const _ of [1, 2]) assert.strictEqual((yield* make(tiny)).status, 202)
          assertError(yield* make(tiny), 403, /: 2 % in use, 1 % requested$/)
          const path = "/api/quotas/team-b"
          yield* expectStatus(admin, 200, "PATCH", path, { body: { max_cpu: null } })
          const { json } = yield* make(tiny)
          assertError(yield* make(tiny), 403, /: 90 MB in use, 30 MB requested$/)
          yield* expectStatus(admin, 200, "DELETE", `/api/servers/${json.id}?force=true`)
          assertError(yield* admin.request("PATCH", path, { body: { max_disk: null } }), 422, /limit nothing/)
          yield* expectStatus(admin, 200, "PATCH", path, { body: { max_disk: 10 } })
          assertError(yield* make({ ...tiny, disk_space: 1 }), 403, /at most 10 MB.*: 60 MB in use/)
        })
    )

    it.effect("a server that is up counts for its quota and its node with the limits that it runs with", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        yield* post("team-e", { max_memory: 300 })
        const key = yield* keyed("Operator", { ...every, quota: "team-e" })
        const id = yield* create(key, "kept", { overrides: { limits: { memory_limit: 200 } }, start: true })
        const reserved = Effect.gen(function* () {
          const { json: quota } = yield* expectStatus(admin, 200, "GET", "/api/quotas/team-e")
          const [node] = (yield* expectStatus(admin, 200, "GET", "/api/nodes")).json
          const { json: own } = yield* expectStatus(admin, 200, "GET", `/api/nodes/${node.id}`)
          return { quota: quota.used.memory, node: own.committed.memory_bytes / 2 ** 20 }
        })
        const limit = (memory_limit: number, status = 200) =>
          expectStatus(key, status, "PATCH", `/api/servers/${id}`, {
            body: { overrides: { limits: { memory_limit } } }
          })
        const restart = Effect.gen(function* () {
          yield* expectStatus(key, 200, "POST", `/api/servers/${id}/power`, { body: { action: "kill" } })
          yield* expectStatus(key, 200, "GET", `/api/servers/${id}?wait=offline`)
          yield* expectStatus(key, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
          yield* expectStatus(key, 200, "GET", `/api/servers/${id}?wait=running`)
        })
        yield* expectStatus(admin, 200, "GET", `/api/servers/${id}?wait=running`)
        const before = yield* reserved
        yield* limit(50)
        assert.deepStrictEqual(yield* reserved, before)
        const another = { blueprint_id: "kept", overrides: { limits: { memory_limit: 150 } } }
        assertError(
          yield* key.request("POST", "/api/servers", { body: another }),
          403,
          /: 200 MiB in use, 150 MiB requested$/
        )
        yield* limit(250)
        yield* limit(301, 403)
        yield* limit(60)
        assert.deepStrictEqual(yield* reserved, { quota: 250, node: before.node + 50 })
        yield* restart
        assert.deepStrictEqual(yield* reserved, { quota: 60, node: before.node - 140 })
        assert.strictEqual((yield* key.request("POST", "/api/servers", { body: another })).status, 202)
        yield* expectStatus(key, 200, "DELETE", `/api/servers/${id}?force=true`)
      })
    )

    it.effect("a quota that a valid key has is not deleted; only AppAdmin keys manage quotas", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        for (const [name, limits] of [
          ["none", {}],
          ["Big", { max_servers: 1 }],
          ["zero", { max_memory: 0 }]
        ] as const)
          assertError(yield* post(name, limits), 422)
        assert.strictEqual((yield* post("team-c", { max_servers: 1 })).status, 201)
        assertError(yield* post("team-c", { max_servers: 1 }), 409, "a quota has this name: team-c")
        assertError(
          yield* admin.request("POST", "/api/keys", {
            body: { name: "x", scope: "Operator", quota: "none" }
          }),
          422,
          "body field quota: no quota has this name: none"
        )
        const body = { name: "x", scope: "ReadOnly", quota: "team-c" }
        assertError(yield* admin.request("POST", "/api/keys", { body }), 422)
        const key = yield* keyed("Operator", { ...every, quota: "team-c" })
        const path = "/api/quotas/team-c"
        assertError(yield* key.request("PATCH", path, { body: { max_servers: 9 } }), 403, /scope AppAdmin$/)
        assertError(yield* key.request("GET", "/api/quotas"), 403)
        const inUse = `keys have the quota team-c: ${key.id} (test)`
        assertError(yield* admin.request("DELETE", path), 409, inUse)
        const id = yield* installed(key, "kept")
        yield* expectStatus(admin, 200, "DELETE", `/api/keys/${key.id}`)
        yield* expectStatus(admin, 200, "DELETE", path)
        assertError(yield* admin.request("GET", path), 404, "quota not found: team-c")
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
        const { json: audit } = yield* expectStatus(admin, 200, "GET", "/api/audit?object=team-c")
        assert.deepStrictEqual(
          audit.map((entry: { readonly action: string; readonly result: { readonly status: number } }) => [
            entry.action,
            entry.result.status
          ]),
          [
            ["quota.delete", 200],
            ["quota.delete", 409],
            ["quota.patch", 403],
            ["quota.create", 201]
          ]
        )
      })
    )

    it.effect("muster quotas and muster keys create --quota do the same", () =>
      Effect.gen(function* () {
        const { dataDir } = yield* Muster
        const run = (...args: ReadonlyArray<string>) => muster(args, { MUSTER_DATA_DIR: dataDir })
        const made = yield* run("quotas", "create", "team-d", "--max-servers", "5", "--max-cpu", "400")
        assert.strictEqual(made.code, 0, made.stderr)
        assert.match(made.stdout, /team-d\nservers: +0 of 5\nmemory: +0 MiB\ncpu: +0 of 400 %\ndisk: +0 MB\n/)
        const changed = yield* run("quotas", "patch", "team-d", "--max-servers", "6", "--without", "max-cpu")
        assert.match(changed.stdout, /team-d\nservers: +0 of 6\nmemory: +0 MiB\ncpu: +0 %\n/)
        const key = yield* run("keys", "create", "--name", "d", "--scope", "Operator", "--quota", "team-d")
        assert.strictEqual(key.code, 0, key.stderr)
        assert.match((yield* run("keys", "list")).stdout, /Operator \(quota team-d\)/)
        const refused = yield* run("quotas", "delete", "team-d", "--yes")
        assert.strictEqual(refused.code, 2)
        assert.match(refused.stderr, /`muster keys revoke/)
      })
    )
  })
})
