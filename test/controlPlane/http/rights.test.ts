import { assert, describe, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { type KeyScope, PowerRight, type Right } from "../../../src/contract/domain/Key.ts"
import { PowerAction } from "../../../src/contract/domain/NodeMessages.ts"
import { muster } from "../../support/command.ts"
import { blueprintFile, writeFiles } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed, running, statusOf } from "../../support/servers.ts"
import { assertError, options, service, socket } from "./support/http.ts"
import { contractRoutes, keyed } from "./support/keyed.ts"

const routes = contractRoutes.filter(({ path }) => path.startsWith("/api/"))

layer(service(), options)("keys with limited rights", (it) => {
  describe("spec 6.2", () => {
    it.effect("only routes of administration need the scope AppAdmin", () =>
      Effect.sync(() => {
        const open = routes.filter(({ right }) => right === undefined).map(({ path }) => path.split("/")[2])
        assert.deepStrictEqual([...new Set(open)].toSorted(), [
          "audit",
          "backup-targets",
          "blueprints",
          "keys",
          "nodes",
          "quotas",
          "software",
          "system",
          "webhooks"
        ])
      })
    )

    it.effect.each<{
      readonly scope: KeyScope
      readonly allow?: ReadonlyArray<Right>
      readonly may: ReadonlyArray<Right>
    }>([
      { scope: "ReadOnly", may: ["read"] },
      { scope: "ReadOnly", allow: ["browse"], may: ["read", "browse"] },
      { scope: "Operator", may: ["read", "power", "console", "commands", "change", "schedules"] },
      { scope: "Operator", allow: ["files"], may: ["read", "browse", "files"] },
      { scope: "Operator", allow: ["create", "delete"], may: ["read", "create", "delete"] },
      { scope: "Operator", allow: ["power", "kill"], may: ["read", "power"] },
      { scope: "Operator", allow: ["pause", "start"], may: ["read", "start", "pause"] }
    ])("$scope ($allow) may call the routes that need $may, and no other", ({ allow, may, scope }) =>
      Effect.gen(function* () {
        const api = yield* keyed(scope, allow === undefined ? {} : { allow })
        const { json: own } = yield* expectStatus(api, 200, "GET", "/api/keys/self")
        assert.deepStrictEqual(own, { id: api.id, name: "test", scope, rights: may })
        for (const { method, path, right } of routes) {
          const target = path.replaceAll(/:\w+/g, "nothing")
          // A stream stays open.
          const query = /\/events(?:\/ws)?$/.test(path) ? "?cursor=999999999" : ""
          const answer = yield* api.request(
            method,
            `${target}${query}`,
            method === "GET" ? {} : { raw: "no JSON" }
          )
          const opens = right === "power" && may.some((one) => Schema.is(PowerRight)(one))
          if (right !== undefined && (may.includes(right) || opens))
            assert.notStrictEqual(answer.status, 403, `${method} ${path}`)
          else {
            const lacks =
              right === undefined ? "the API key lacks the scope AppAdmin" : `the API key lacks: ${right}`
            assertError(answer, 403, lacks)
          }
        }
      })
    )

    it.effect.each(PowerRight.literals)(
      "spec 6.2: a key with the right %s does this power action only, on one server and on many",
      (right) =>
        Effect.gen(function* () {
          const admin = yield* Muster
          const key = yield* keyed("Operator", { allow: [right] })
          const id = yield* installed(admin, "kept")
          for (const action of PowerAction.literals) {
            const isOwn = (action === "unpause" ? "pause" : action) === right
            const lacks = `the API key lacks: ${action === "unpause" ? "pause" : action}`
            const one = yield* key.request("POST", `/api/servers/${id}/power`, { body: { action } })
            const many = yield* key.request("POST", "/api/servers/power", {
              body: { action, selector: { ids: [id] } }
            })
            if (isOwn) {
              assert.notStrictEqual(one.status, 403)
              assert.strictEqual(many.status, 200)
            } else for (const answer of [one, many]) assertError(answer, 403, lacks)
          }
          const { json } = yield* expectStatus(
            admin,
            200,
            "GET",
            "/api/audit?limit=1&action=server.power.kill"
          )
          assert.deepInclude(json[0], { result: { status: right === "kill" ? 200 : 403 } })
          yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
        })
    )

    it.effect("a stop that kills before the stop timeout of the server needs the right kill", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const id = yield* installed(admin, "kept", { overrides: { stop_timeout: 20 } })
        const lacks = (action: string) =>
          `the API key lacks: ${action}: the stop timeout of ${id} is 20 s, and wait_seconds is 19.5`
        const key = yield* keyed("Operator", { allow: ["stop", "restart"] })
        const body = { action: "stop", wait_seconds: 19.5 }
        for (const action of ["stop", "restart"])
          assertError(
            yield* key.request("POST", `/api/servers/${id}/power`, { body: { ...body, action } }),
            403,
            lacks("kill")
          )
        const { json } = yield* expectStatus(key, 200, "POST", "/api/servers/power", {
          body: { ...body, selector: { ids: [id] } }
        })
        assert.deepInclude(json[id], { code: "403", detail: lacks("kill") })
        yield* expectStatus(key, 200, "POST", `/api/servers/${id}/power`, {
          body: { action: "stop", wait_seconds: 20 }
        })
        const killer = yield* keyed("Operator", { allow: ["stop", "kill"] })
        yield* expectStatus(killer, 200, "POST", `/api/servers/${id}/power`, { body })
        yield* expectStatus(yield* keyed("Operator"), 200, "POST", `/api/servers/${id}/power`, { body })
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
      })
    )

    it.effect("an Operator key starts and upgrades a server, and cannot delete it", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const api = yield* keyed("Operator")
        const id = yield* installed(admin, "kept")
        yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
        yield* expectStatus(api, 200, "POST", `/api/servers/${id}/upgrade`, { body: { dry_run: true } })
        assertError(yield* api.request("DELETE", `/api/servers/${id}`), 403, "the API key lacks: delete")
        assertError(
          yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } }),
          403,
          "the API key lacks: create"
        )
        assert.notStrictEqual(yield* statusOf(api, id), "gone")
      })
    )

    it.effect("without the right delete, no change of a server leads to its deletion", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const api = yield* keyed("Operator")
        const id = yield* installed(admin, "kept")
        const lacksDelete = /^the API key lacks: delete: /
        const path = `/api/servers/${id}`
        const patch = (body: object) => api.request("PATCH", path, { body })
        assertError(yield* patch({ expires_in: 10 }), 403, lacksDelete)
        assertError(yield* patch({ overrides: { save: false } }), 403, lacksDelete)
        assertError(
          yield* api.request("POST", `${path}/upgrade`, { body: { blueprint_id: "passing" } }),
          403,
          lacksDelete
        )
        yield* expectStatus(admin, 200, "PATCH", path, { body: { expires_in: 1000 } })
        assertError(yield* patch({ expires_in: 500, name: "soon" }), 403, lacksDelete)
        // Later, or never: the server stays.
        yield* expectStatus(api, 200, "PATCH", path, { body: { expires_in: 2000 } })
        const { json } = yield* expectStatus(api, 200, "PATCH", path, { body: { expires_in: null } })
        assert.isNull(json.expires_at)
        assert.isNull(json.name)
        yield* expectStatus(api, 202, "POST", `${path}/upgrade`)
        const publish = Effect.fnUntraced(function* (save: boolean) {
          yield* writeFiles(admin.folders.blueprints, { "kept.yml": blueprintFile("kept", "game", { save }) })
          yield* expectStatus(admin, 200, "POST", "/api/blueprints/reload")
        })
        yield* publish(false)
        for (const body of [{}, { definition: "today" }])
          assertError(yield* api.request("POST", `${path}/reinstall`, { body }), 403, lacksDelete)
        const body = { selector: { ids: [id] } }
        assertError(yield* api.request("POST", "/api/rollouts", { body }), 403, lacksDelete)
        yield* publish(true)
        const other = yield* keyed("Operator", { allow: ["change", "delete"] })
        yield* expectStatus(other, 200, "PATCH", path, { body: { expires_in: 1000 } })
      })
    )

    it.effect("a ticket has the rights of its key; lines of a console need the right commands", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const reader = yield* keyed("ReadOnly")
        const id = yield* running(admin, "kept")
        const { json } = yield* expectStatus(reader, 201, "POST", "/api/events/tickets")
        const events = yield* reader.request("GET", `/api/events?ticket=${json.ticket}&cursor=999999999`, {
          key: null
        })
        assert.strictEqual(events.status, 410)
        const { json: other } = yield* expectStatus(reader, 201, "POST", "/api/events/tickets")
        assertError(
          yield* reader.request("GET", `/api/servers/${id}/console?ticket=${other.ticket}`, { key: null }),
          403,
          "the API key lacks: console"
        )
        const watcher = yield* keyed("Operator", { allow: ["console"] })
        const console = yield* socket(watcher, `/api/servers/${id}/console`)
        console.ws.send("from the watcher")
        const whole = yield* socket(yield* keyed("Operator"), `/api/servers/${id}/console`)
        whole.ws.send("from the operator")
        const lines = Effect.map(
          expectStatus(admin, 200, "GET", `/api/servers/${id}/logs`),
          ({ json: logs }) => logs.data.join()
        )
        const text = yield* eventually(lines, (all) => all.includes("from the operator"))
        assert.notInclude(text, "from the watcher")
      })
    )

    it.effect("keys are created, listed and revoked over the API; a text is shown once", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const { id, key, request } = yield* keyed("Operator", { allow: ["power"] })
        assert.match(key, /^mst_/)
        const list = yield* expectStatus(admin, 200, "GET", "/api/keys")
        assert.notInclude(list.text, key)
        const listed = list.json.find((one: { readonly id: string }) => one.id === id)
        assert.deepInclude(listed, { name: "test", scope: "Operator", allow: ["power"], revoked_at: null })
        assert.notProperty(listed, "hash")
        yield* expectStatus(admin, 200, "DELETE", `/api/keys/${id}`)
        assertError(yield* request("GET", "/api/nodes"), 401)
        assertError(yield* admin.request("DELETE", `/api/keys/${id}`), 404)
      })
    )

    it.effect("a drain with notify needs the right commands, one with deadline needs stop", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const [{ id }] = (yield* expectStatus(admin, 200, "GET", "/api/nodes")).json
        const path = `/api/nodes/${id}/drained`
        const drain = { drained: true, move: true }
        for (const [field, value, right] of [
          ["notify", "say bye", "commands"],
          ["deadline", 60, "stop"]
        ] as const) {
          const body = { ...drain, [field]: value }
          const changes = yield* keyed("Operator", { allow: ["change"] })
          for (const query of ["", "?dry_run=true"])
            assertError(
              yield* changes.request("PATCH", `${path}${query}`, { body }),
              403,
              `the API key lacks: ${right}: body field ${field} needs it`
            )
          const { json } = yield* expectStatus(admin, 200, "GET", `/api/nodes/${id}`)
          assert.deepStrictEqual([json.drained, json.move], [false, undefined])
          const may = yield* keyed("Operator", { allow: ["change", right] })
          yield* expectStatus(may, 200, "PATCH", path, { body })
          yield* expectStatus(changes, 200, "PATCH", path, { body: drain })
          yield* expectStatus(changes, 200, "PATCH", path, { body: { drained: false } })
        }
      })
    )

    it.effect("a rollout with notify needs the right commands", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const id = yield* installed(admin, "kept")
        const body = { selector: { ids: [id] }, notify: "say bye" }
        const changes = yield* keyed("Operator", { allow: ["change"] })
        assertError(
          yield* changes.request("POST", "/api/rollouts", { body }),
          403,
          "the API key lacks: commands: body field notify needs it"
        )
        const may = yield* keyed("Operator", { allow: ["change", "commands"] })
        yield* expectStatus(may, 201, "POST", "/api/rollouts", { body })
      })
    )

    it.effect("rights are refused with a scope that has its own", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [scope, allow] of [
          ["AppAdmin", ["power"]],
          ["ReadOnly", ["power"]],
          ["ReadOnly", ["files"]],
          ["Metrics", ["read"]],
          ["Operator", ["everything"]]
        ] as const) {
          assertError(yield* api.request("POST", "/api/keys", { body: { name: "x", scope, allow } }), 422)
        }
        for (const [scope, allow, reason] of [
          ["Metrics", "power", "--allow needs --scope Operator"],
          ["ReadOnly", "power", "ReadOnly takes read and browse only; others need --scope Operator"]
        ] as const) {
          const args = ["keys", "create", "--name", "x", "--scope", scope, "--allow", allow]
          const ended = yield* muster(args, { MUSTER_DATA_DIR: api.dataDir })
          assert.strictEqual(ended.code, 64)
          assert.include(ended.stderr, reason)
        }
      })
    )
  })
})
