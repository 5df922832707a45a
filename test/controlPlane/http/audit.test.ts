import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import type { AuditEntry } from "../../../src/contract/domain/AuditEntry.ts"
import { SINGLE_ENTRIES } from "../../../src/controlPlane/audit/AuditLog.ts"
import { routesOf } from "../../../src/controlPlane/http/routes.ts"
import { muster } from "../../support/command.ts"
import { Muster } from "../../support/Muster.ts"
import { type RequestOptions, requestTo } from "../../support/Service.ts"
import { expectStatus, installed, powered } from "../../support/servers.ts"
import { assertError, options, service, socket } from "./support/http.ts"

const audit = Effect.fnUntraced(function* (query = "") {
  const api = yield* Muster
  const { json } = yield* expectStatus(api, 200, "GET", `/api/audit?${query}`)
  // The response of the service, whose schema test/controlPlane/http/responseSchemas.test.ts checks.
  return json as ReadonlyArray<AuditEntry>
})

/** Returns the entries of one request. */
const entriesOf = Effect.fnUntraced(function* (
  status: number,
  method: string,
  path: string,
  request: RequestOptions = {}
) {
  const api = yield* Muster
  const id = `r-${crypto.randomUUID()}`
  const answer = yield* expectStatus(api, status, method, path, {
    ...request,
    headers: { ...request.headers, "x-request-id": id }
  })
  const all = yield* audit()
  return { answer, entries: all.filter(({ request_id }) => request_id === id) }
})

/** Returns what the only entry of a request says. */
const entryOf = Effect.fnUntraced(function* (...[status, ...request]: Parameters<typeof entriesOf>) {
  const { answer, entries } = yield* entriesOf(status, ...request)
  assert.lengthOf(entries, 1, `${request[0]} ${request[1]}`)
  const [{ action, changes, object, result } = assert.fail("no entry")] = entries
  assert.strictEqual(result.status, status)
  return { answer, action, object, changes }
})

layer(service(), options)("the audit log", (it) => {
  describe("spec 6.6", () => {
    it.effect("every route that writes is audited", () =>
      Effect.sync(() => {
        const writing: Array<string> = []
        HttpApi.reflect(ApplicationApi, {
          onGroup: () => {},
          onEndpoint: ({ endpoint, group }) => {
            if (endpoint.method !== "GET") writing.push(`${group.identifier}.${endpoint.identifier}`)
          }
        })
        // The lines of an open console are commands, and reads of contents are audited.
        const reading = [
          "servers.console",
          "files.read",
          "files.archive",
          "files.search",
          "backups.content",
          "backups.archive"
        ]
        // An unfinished upload is no file yet.
        const wanted = [...writing.filter((name) => name !== "uploads.end"), ...reading]
        assert.sameMembers(
          routesOf(ApplicationApi).flatMap(({ audited, name }) => (audited === undefined ? [] : [name])),
          wanted
        )
      })
    )

    it.effect("a request has one entry: caller, address, action, object and status", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const before = Date.now()
        const { answer, entries } = yield* entriesOf(202, "POST", "/api/servers", {
          body: { blueprint_id: "kept" }
        })
        const { id } = answer.json
        const [{ at, id: _, request_id: __, ...entry } = assert.fail("no entry")] = entries
        assert.isAtLeast(Date.parse(at), before)
        assert.deepStrictEqual(entry, {
          actor: { key_id: "env", name: "APP_ADMIN_API_KEY", scope: "AppAdmin" },
          client: "127.0.0.1",
          action: "server.create",
          object: { kind: "server", id },
          changes: [],
          result: { status: 202 }
        })
        yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=installed`)
        const path = `/api/servers/${id}`
        const object = { kind: "server", id }
        const patch = yield* entryOf(200, "PATCH", path, {
          body: { name: "lobby", overrides: { limits: { memory_limit: 333 }, env: { PASSWORD: "hunter2" } } }
        })
        assert.deepInclude(patch, {
          action: "server.patch",
          object,
          changes: ["name", "limits.memory_limit", "env.PASSWORD"]
        })
        assert.notInclude(JSON.stringify(yield* audit()), "hunter2")
        const named = { ...object, name: "lobby" }
        const start = yield* entryOf(200, "POST", `${path}/power`, { body: { action: "start" } })
        assert.deepInclude(start, { action: "server.power.start", object: named })
        yield* expectStatus(api, 200, "GET", `${path}?wait=running`)
        assert.deepInclude(
          yield* entryOf(204, "POST", `${path}/commands`, { body: { commands: ["the secret line"] } }),
          { action: "server.commands", object: named, changes: [] }
        )
        assert.strictEqual((yield* entryOf(426, "GET", `${path}/console`)).action, "server.console")
        const console = yield* socket(api, `${path}/console`, {
          authorization: `Bearer ${api.key}`,
          "x-request-id": "console-1"
        })
        const [opened, ...more] = (yield* audit(`action=server.console&object=${id}&result=ok`)).map(
          ({ request_id, result }) => ({ request_id, ...result })
        )
        assert.deepStrictEqual([opened, more], [{ request_id: "console-1", status: 101 }, []])
        console.ws.close()
        assert.deepInclude(yield* entryOf(200, "DELETE", path), { action: "server.delete", object: named })
        // The server had a name since its change.
        assert.notProperty((yield* audit(`object=${id}&action=server.patch`))[0]?.object, "name")
        const [deletion, ...others] = yield* audit(`object=${id}&action=server.delete`)
        assert.deepStrictEqual((yield* audit("object=lobby&action=server.delete"))[0], deletion)
        assert.strictEqual(deletion?.actor.name, "APP_ADMIN_API_KEY")
        assert.deepStrictEqual(others, [])
      })
    )

    it.effect("refused requests have entries, too; without a valid key or a route there is none", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const nothing = yield* entryOf(404, "POST", "/api/servers", { body: { blueprint_id: "nope" } })
        assert.deepInclude(nothing, { action: "server.create", object: { kind: "server", id: null } })
        assert.deepInclude(yield* entryOf(404, "DELETE", "/api/servers/nope"), {
          object: { kind: "server", id: "nope" }
        })
        assert.deepInclude(
          yield* entryOf(422, "POST", "/api/servers/nope/power", { body: { action: "jump" } }),
          {
            action: "server.power"
          }
        )
        assert.deepInclude(yield* entryOf(422, "PATCH", "/api/servers/nope", { raw: "{" }), { changes: [] })
        const { key, text } = yield* Effect.map(
          entryOf(201, "POST", "/api/keys", { body: { name: "reader", scope: "ReadOnly" } }),
          ({ action, answer, object }) => {
            assert.deepStrictEqual([action, object], ["key.create", { kind: "key", id: answer.json.id }])
            return { key: answer.json.key, text: answer.json.id }
          }
        )
        assert.deepInclude(yield* entryOf(403, "POST", "/api/blueprints/reload", { key }), {
          action: "blueprints.reload"
        })
        const [refused] = yield* audit("actor=reader&result=403")
        assert.deepStrictEqual(refused?.actor, { key_id: text, name: "reader", scope: "ReadOnly" })
        assertError(yield* requestTo(api.url, key)("GET", "/api/audit"), 403)
        const none = [
          [401, "DELETE", "/api/servers/nope", { key: "mst_wrong" }],
          [404, "POST", "/api/nowhere", {}],
          [405, "PUT", "/api/servers/nope", {}],
          [200, "POST", "/api/servers?dry_run=true", { body: { blueprint_id: "kept" } }],
          [422, "POST", "/api/rollouts?dry_run=true", { body: { selector: { blueprint_id: "none" } } }],
          [200, "GET", "/api/servers", {}]
        ] as const
        for (const [status, method, path, request] of none) {
          assert.deepStrictEqual((yield* entriesOf(status, method, path, request)).entries, [], path)
        }
        assert.notInclude(JSON.stringify(yield* audit("limit=1000")), key)
      })
    )

    it.effect("a bulk action has one entry, which each of its servers finds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const ids = yield* Effect.forEach(["one", "two"], (name) => installed(api, "kept", { name }))
        const selector = { ids: [...ids, "nope"] }
        const start = yield* entryOf(200, "POST", "/api/servers/power", {
          body: { selector, action: "start" }
        })
        const object = { kind: "server", id: null, count: 2 }
        assert.deepInclude(start, { action: "server.power.start", object })
        assert.deepInclude(yield* entryOf(200, "DELETE", "/api/servers", { body: { selector } }), {
          action: "server.delete",
          object
        })
        for (const one of [...ids, "one", "two"])
          assert.lengthOf(yield* audit(`object=${one}&action=server.delete`), 1)
        assert.lengthOf(yield* audit("object=nope&action=server.delete&result=ok"), 0)
      })
    )

    it.effect("a repeated creation names the server of the first one", () =>
      Effect.gen(function* () {
        const request = { body: { blueprint_id: "kept" }, headers: { "idempotency-key": "once" } }
        const first = yield* entryOf(202, "POST", "/api/servers", request)
        const again = yield* entryOf(202, "POST", "/api/servers", request)
        assert.deepStrictEqual(again.object, first.object)
        assert.strictEqual(first.object.id, first.answer.json.id)
        const other = yield* entryOf(409, "POST", "/api/servers", {
          ...request,
          body: { blueprint_id: "passing" }
        })
        assert.isNull(other.object.id)
      })
    )

    it.effect("changes of keys by a command are entries of the actor cli", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* muster(["keys", "create", "--name", "x"], { MUSTER_DATA_DIR: api.dataDir })
        const id = /^Key (\S+)/m.exec(made.stderr)?.[1] ?? assert.fail(made.stderr)
        yield* muster(["keys", "revoke", id], { MUSTER_DATA_DIR: api.dataDir })
        const again = yield* entryOf(404, "DELETE", `/api/keys/${id}`)
        assert.deepInclude(again, { action: "key.revoke", object: { kind: "key", id } })
        const entries = yield* audit(`actor=cli&object=${id}`)
        assert.deepStrictEqual(
          entries.map(({ action, actor, client, result }) => ({ action, actor, client, ...result })),
          [
            { action: "key.revoke", status: 200 },
            { action: "key.create", status: 201 }
          ].map((entry) => ({
            ...entry,
            actor: { key_id: "cli", name: "cli", scope: "AppAdmin" as const },
            client: null
          }))
        )
      })
    )

    it.effect("beyond 100 in a minute, the tickets of a key share an entry", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json } = yield* expectStatus(api, 201, "POST", "/api/keys", {
          body: { name: "watcher", scope: "ReadOnly" }
        })
        const ticket = requestTo(api.url, json.key)("POST", "/api/events/tickets")
        for (let i = 0; i < 105; i++) assert.strictEqual((yield* ticket).status, 201)
        const entries = yield* audit(`actor=${json.id}&limit=1000`)
        assert.deepStrictEqual(
          new Set(entries.map(({ action, result }) => `${action} ${result.status}`)),
          new Set(["ticket.create 201"])
        )
        // The entry that the other five share is written when the minute is over.
        assert.lengthOf(entries, 100)
      })
    )

    it.effect(
      "beyond 100 in a minute, requests that change nothing share an entry; others have their own",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept", { name: "same" })
          const { json } = yield* expectStatus(api, 201, "POST", "/api/keys", {
            body: { name: "patcher", scope: "Operator" }
          })
          const { key } = json
          const path = `/api/servers/${id}`
          const patch = (body: object) => expectStatus(api, 200, "PATCH", path, { key, body })
          const entries = Effect.map(audit(`actor=${json.id}&result=ok&limit=1000`), ({ length }) => length)
          const overrides = { limits: { memory_limit: 333 } }
          yield* patch({ labels: { a: "b" }, overrides })
          // Returns once no report of the node is under way.
          yield* powered(api, id, "stop")
          const bulk = (selector: object) =>
            expectStatus(api, 200, "POST", "/api/servers/power", { key, body: { selector, action: "stop" } })
          const same = [
            patch({ name: "same", labels: { a: "b", c: null } }),
            patch({ name: "same", overrides }),
            expectStatus(api, 202, "POST", `${path}/upgrade`, { key }),
            expectStatus(api, 200, "POST", `${path}/power`, { key, body: { action: "stop" } }),
            bulk({ ids: [id, "nope"] })
          ]
          for (let i = 0; i < SINGLE_ENTRIES / 5 + 5; i++) yield* Effect.all(same)
          assert.strictEqual(yield* entries, 1 + SINGLE_ENTRIES)
          const [stopped] = yield* audit(`actor=${json.id}&action=server.power.stop&limit=1`)
          assert.notProperty(stopped?.object, "count")
          for (const change of [
            { name: "other" },
            { labels: { a: null } },
            { overrides: { limits: null } }
          ]) {
            yield* patch(change)
          }
          assert.strictEqual(yield* entries, 4 + SINGLE_ENTRIES)
        })
    )

    it.effect("an entry has no names that the caller has invented", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept", { name: "named" })
        const body = {
          labels: { made: null, kept: "x" },
          overrides: { env: { MADE: null, KEPT: "x" }, configs: { made: null } }
        }
        const { changes } = yield* entryOf(200, "PATCH", `/api/servers/${id}`, { body })
        assert.deepStrictEqual(changes, ["labels.kept", "env.KEPT"])
        const refused = yield* entryOf(404, "PATCH", "/api/servers/nope", { body })
        assert.deepStrictEqual(refused.changes, ["labels", "configs", "env"])
      })
    )

    it.effect("the list has pages with Link, and refuses unknown values", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (let i = 0; i < 3; i++) yield* expectStatus(api, 201, "POST", "/api/events/tickets")
        const first = yield* expectStatus(api, 200, "GET", "/api/audit?action=ticket&actor=env&limit=2")
        assert.lengthOf(first.json, 2)
        const next = /<([^>]*)>; rel="next"/.exec(first.headers.get("link") ?? "")?.[1] ?? ""
        const second = yield* expectStatus(api, 200, "GET", next)
        assert.lengthOf(second.json, 1)
        assert.isNull(second.headers.get("link"))
        for (const query of ["limit=0", "result=maybe", "since=today", "after=x", "who=me"]) {
          assertError(yield* api.request("GET", `/api/audit?${query}`), 422, /query field/)
        }
        yield* powered(api, yield* installed(api, "kept"), "stop")
      })
    )
  })
})
