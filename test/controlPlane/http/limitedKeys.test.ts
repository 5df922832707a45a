import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Right } from "../../../src/contract/domain/Key.ts"
import { blueprintFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { commands, create, expectStatus, installed, running } from "../../support/servers.ts"
import { assertError, games, options, socket } from "./support/http.ts"
import { contractRoutes, keyed } from "./support/keyed.ts"

const service = Muster.layer(
  {
    software: games.software,
    blueprints: {
      ...games.blueprints,
      "other.yml": blueprintFile("other", "game"),
      "patched.yml": blueprintFile("patched", "game", {
        server: { configs: { "game.properties": { parser: "properties", find: { motd: "hi" } } } },
        rest: { state: { env: { A: "0" } } }
      })
    }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26700-26799" }
)

const every = { allow: Right.literals }

/** The id of no server, as long as that of one. */
const UNKNOWN = "zzzzzzzzzzzz"

/** The input of each route that a limited key can call, about the server `id`, and the status of the response. */
const inputs: Readonly<
  Record<string, (id: string) => { readonly status: number; readonly body?: object; readonly query?: string }>
> = {
  "nodes.list": () => ({ status: 200 }),
  "nodes.get": () => ({ status: 200 }),
  "nodes.system": () => ({ status: 200 }),
  "nodes.drained": () => ({ status: 403, body: { drained: true } }),
  "system.info": () => ({ status: 200 }),
  "keys.self": () => ({ status: 200 }),
  "blueprints.list": () => ({ status: 200 }),
  "blueprints.get": () => ({ status: 200 }),
  "blueprints.mixins": () => ({ status: 200 }),
  "blueprints.mixin": () => ({ status: 404 }),
  "blueprints.softwareList": () => ({ status: 200 }),
  "blueprints.software": () => ({ status: 200 }),
  "blueprints.warnings": () => ({ status: 200 }),
  "blueprints.sources": () => ({ status: 200 }),
  "servers.list": () => ({ status: 200 }),
  "servers.get": () => ({ status: 404 }),
  "servers.status": () => ({ status: 404 }),
  "servers.stats": () => ({ status: 404 }),
  "servers.statsOfMany": () => ({ status: 200 }),
  "servers.logs": () => ({ status: 404 }),
  "servers.install": () => ({ status: 404 }),
  "servers.installLogs": () => ({ status: 404 }),
  "servers.crashesOf": () => ({ status: 404 }),
  "servers.crashes": () => ({ status: 200 }),
  "servers.events": () => ({ status: 404 }),
  "servers.console": () => ({ status: 404 }),
  "servers.commands": () => ({ status: 404, body: { commands: ["x"] } }),
  "servers.power": () => ({ status: 404, body: { action: "start" } }),
  "servers.powerMany": (id) => ({ status: 200, body: { selector: { ids: [id] }, action: "start" } }),
  "servers.patch": () => ({ status: 404, body: { name: "taken" } }),
  "servers.reset": () => ({ status: 404 }),
  "servers.reinstall": () => ({ status: 404 }),
  "servers.upgrade": () => ({ status: 404 }),
  "servers.create": () => ({ status: 403, body: { blueprint_id: "kept" } }),
  "servers.remove": () => ({ status: 404, query: "?force=true" }),
  "servers.undelete": () => ({ status: 404 }),
  "servers.removeMany": (id) => ({ status: 200, body: { selector: { ids: [id] } } }),
  "rollouts.create": (id) => ({ status: 404, body: { selector: { ids: [id] } } }),
  "rollouts.list": () => ({ status: 200 }),
  "rollouts.get": () => ({ status: 404 }),
  "rollouts.pause": () => ({ status: 404 }),
  "rollouts.resume": () => ({ status: 404 }),
  "rollouts.abort": () => ({ status: 404 }),
  "files.list": () => ({ status: 404 }),
  "files.read": () => ({ status: 404, query: "?path=/a" }),
  "files.write": () => ({ status: 404, query: "?path=/a" }),
  "files.archive": () => ({ status: 404, query: "?path=/a" }),
  "files.receive": () => ({ status: 404, query: "?path=/a" }),
  "files.unpack": () => ({ status: 404, body: { path: "/a", to: "/b" } }),
  "files.pack": () => ({ status: 404, body: { paths: ["/a"], to: "/b.zip" } }),
  "files.folder": () => ({ status: 404, body: { path: "/a" } }),
  "files.move": () => ({ status: 404, body: { moves: [{ from: "/a", to: "/b" }] } }),
  "files.copy": () => ({ status: 404, body: { copies: [{ from: "/a", to: "/b" }] } }),
  "files.delete": () => ({ status: 404, body: { paths: ["/a"] } }),
  "files.mode": () => ({ status: 404, body: { paths: ["/a"], mode: "0644" } }),
  "files.search": () => ({ status: 404, query: "?text=a" }),
  "files.diff": () => ({ status: 404 }),
  "files.writeToMany": (id) => ({
    status: 200,
    body: { selector: { ids: [id] }, path: "/a", content: "a" }
  }),
  "backups.create": () => ({ status: 404 }),
  "backups.createMany": (id) => ({ status: 200, body: { selector: { ids: [id] } } }),
  "backups.listOf": () => ({ status: 404 }),
  "backups.list": (id) => ({ status: 200, query: `?server_id=${id}` }),
  "backups.get": () => ({ status: 404 }),
  "backups.patch": () => ({ status: 404, body: { name: "b" } }),
  "backups.remove": () => ({ status: 404 }),
  "backups.files": () => ({ status: 404 }),
  "backups.content": () => ({ status: 404, query: "?path=/a" }),
  "backups.archive": () => ({ status: 404 }),
  "backups.verify": () => ({ status: 404 }),
  "backups.drill": () => ({ status: 404, body: {} }),
  "backups.restore": () => ({ status: 404, body: { backup_id: "none" } }),
  "sftp.login": () => ({ status: 404 }),
  "schedules.create": (id) => ({
    status: 404,
    body: { name: "a", server_id: id, cron: "0 4 * * *", steps: [{ wait: 1 }] }
  }),
  "schedules.list": (id) => ({ status: 200, query: `?server_id=${id}` }),
  "schedules.get": () => ({ status: 404 }),
  "schedules.patch": () => ({ status: 404, body: { name: "b" } }),
  "schedules.remove": () => ({ status: 404 }),
  "schedules.run": () => ({ status: 404 }),
  "schedules.runs": () => ({ status: 404 }),
  "schedules.getRun": () => ({ status: 404 }),
  "schedules.cancelRun": () => ({ status: 404 }),
  "uploads.create": () => ({ status: 404 }),
  "uploads.find": () => ({ status: 404 }),
  "uploads.append": () => ({ status: 404 }),
  "uploads.end": () => ({ status: 404 }),
  "operations.list": () => ({ status: 200 }),
  "operations.get": () => ({ status: 404 }),
  "operations.cancel": () => ({ status: 404 }),
  // A stream stays open.
  "events.sse": () => ({ status: 410, query: "?cursor=999999999" }),
  "events.websocket": () => ({ status: 410, query: "?cursor=999999999" }),
  "events.ticket": () => ({ status: 201 })
}

layer(service, options)("keys limited to some servers", (it) => {
  describe("spec 6.2", () => {
    it.effect("on every route, a server that the key may not read is like one that does not exist", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const reached = contractRoutes.filter(({ right }) => right !== undefined).map(({ name }) => name)
        assert.deepStrictEqual(reached.toSorted(), Object.keys(inputs).toSorted())
        const [mine, other] = [yield* installed(admin, "kept"), yield* installed(admin, "kept")]
        const { json: rollout } = yield* expectStatus(admin, 201, "POST", "/api/rollouts", {
          body: { selector: { ids: [other] } }
        })
        const [{ id: node }] = (yield* expectStatus(admin, 200, "GET", "/api/nodes")).json
        const key = yield* keyed("Operator", { ...every, servers: [mine] })
        const view = () =>
          Effect.map(
            expectStatus(admin, 200, "GET", `/api/servers/${other}?include=status,name,labels,updated_at`),
            ({ text }) => text
          )
        const before = yield* view()
        const values = {
          node,
          blueprint: "kept",
          software: "game",
          mixin: "none",
          operation: "none",
          schedule: "none",
          run: "none",
          upload: "none",
          backup: "none"
        }
        const call = Effect.fnUntraced(function* (route: (typeof contractRoutes)[number], server: string) {
          const { body, query = "", status } = inputs[route.name]?.(server) ?? { status: 0 }
          const rollout_id = server === UNKNOWN ? "x".repeat(rollout.id.length) : rollout.id
          const parameters: Record<string, string> = { ...values, server, rollout: rollout_id }
          const path = route.path.replaceAll(/:(\w+)/g, (_, name) => parameters[name] ?? "")
          const sent = body === undefined ? {} : { body }
          const answer = yield* key.request(route.method, `${path}${query}`, sent)
          assert.strictEqual(answer.status, status, `${route.name}: ${answer.text}`)
          const text = answer.text
            .replaceAll(server, "ID")
            .replaceAll(rollout_id, "ROLLOUT")
            .replace(/"request_id":"[^"]*"/g, "")
          return { status: answer.status, text, hasOther: answer.text.includes(other), body }
        })
        for (const route of contractRoutes.filter(({ right }) => right !== undefined)) {
          const [unknown, hidden] = [yield* call(route, UNKNOWN), yield* call(route, other)]
          const sendsId = route.path.includes(":server") || JSON.stringify(hidden.body)?.includes(other)
          if (sendsId || route.path.includes(":rollout")) assert.strictEqual(hidden.text, unknown.text)
          if (!sendsId) assert.isFalse(hidden.hasOther, route.name)
        }
        assert.strictEqual(yield* view(), before)
        // Input is not read first: a bad body would otherwise tell that the server exists.
        for (const id of [UNKNOWN, other])
          assertError(yield* key.request("PATCH", `/api/servers/${id}`, { raw: "no JSON" }), 404)
        assertError(yield* key.request("GET", `/api/servers?limit=1&after=${other}`), 422)
        const { json } = yield* expectStatus(key, 200, "GET", "/api/servers?ids_only=true")
        assert.deepStrictEqual(json, [mine])
        const { json: detail } = yield* expectStatus(key, 200, "GET", `/api/nodes/${node}`)
        assert.strictEqual(detail.servers, 1)
        assertError(
          yield* key.request("POST", "/api/servers", { body: { blueprint_id: "kept" } }),
          403,
          "the API key lacks: create: it is limited to servers by their ids"
        )
        yield* expectStatus(key, 200, "DELETE", `/api/servers/${mine}`)
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${other}`)
      })
    )

    it.effect("streams, replays and crashes have only the servers of the key, also deleted ones", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const key = yield* keyed("Operator", { ...every, labels: { team: "a" } })
        const live = yield* subscribe(key, "/api/events?cursor=0&include=server")
        const { messages } = yield* socket(key, "/api/events/ws")
        const other = yield* running(admin, "kept", { labels: { team: "b" } })
        const mine = yield* running(key, "kept", { labels: { team: "a" } })
        for (const id of [other, mine]) {
          yield* commands(admin, id, "exit 3")
          yield* expectStatus(admin, 200, "GET", `/api/servers/${id}?wait=offline`)
          yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}`)
        }
        const seen = [
          "installing",
          "offline",
          "starting",
          "running",
          "crash exit code 3",
          "offline",
          "deleted"
        ]
        yield* eventsAre(live, mine, seen)
        yield* eventually(Effect.sync(messages), (all) => all.length === seen.length)
        const replay = yield* subscribe(
          key,
          "/api/events?cursor=0&topics=status,crash,deleted,install,expiring"
        )
        yield* eventually(
          Effect.sync(() => replay.of(mine)),
          (all) => all.at(-1) === "deleted"
        )
        for (const text of [live.text(), replay.text(), messages().join()]) assert.notInclude(text, other)
        const { json: issued } = yield* expectStatus(key, 201, "POST", "/api/events/tickets")
        const ticket = yield* subscribe(key, `/api/events?cursor=0&ticket=${issued.ticket}`, { key: null })
        yield* eventually(
          Effect.sync(() => ticket.of(mine)),
          (all) => all.at(-1) === "deleted"
        )
        assert.notInclude(ticket.text(), other)
        const { json: crashes } = yield* expectStatus(key, 200, "GET", "/api/crashes?limit=1")
        assert.strictEqual(crashes[0].server_id, mine)
        const { json: older } = yield* expectStatus(key, 200, "GET", `/api/crashes?after=${crashes[0].id}`)
        assert.deepStrictEqual(older, [])
        yield* expectStatus(key, 200, "GET", `/api/servers/${mine}/crashes`)
        assertError(yield* key.request("GET", `/api/servers/${other}/crashes`), 404)
        const { json: hidden } = yield* expectStatus(admin, 200, "GET", `/api/servers/${other}/crashes`)
        assertError(yield* key.request("GET", `/api/crashes?after=${hidden[0].id}`), 422)
      })
    )

    it.effect(
      "no creation, PATCH or upgrade moves a server across the limits; a console ends with them",
      () =>
        Effect.gen(function* () {
          const admin = yield* Muster
          const key = yield* keyed("Operator", { ...every, labels: { team: "a" }, blueprints: ["kept"] })
          const post = (body: object, query = "") => key.request("POST", `/api/servers${query}`, { body })
          const lacksLabel =
            "the API key lacks: create: it is limited to servers with labels that this server would lack: team=a"
          for (const query of ["", "?dry_run=true"]) {
            assertError(yield* post({ blueprint_id: "kept", labels: { team: "b" } }, query), 403, lacksLabel)
            assertError(
              yield* post({ blueprint_id: "other", labels: { team: "a" } }, query),
              403,
              "the API key lacks: create: it is limited to other blueprints than other: kept"
            )
          }
          const id = yield* running(key, "kept", { labels: { team: "a" } })
          const path = `/api/servers/${id}`
          for (const labels of [{ team: null }, { team: "b" }]) {
            assertError(
              yield* key.request("PATCH", path, { body: { labels } }),
              403,
              /^the API key lacks: change: .*: team=a$/
            )
          }
          yield* expectStatus(key, 200, "PATCH", path, { body: { labels: { tier: "1" } } })
          for (const dry_run of [true, false]) {
            assertError(
              yield* key.request("POST", `${path}/upgrade`, { body: { blueprint_id: "other", dry_run } }),
              403,
              "the API key lacks: change: it is limited to other blueprints than other: kept"
            )
          }
          const console = yield* socket(key, `${path}/console`)
          const wait = key.request("GET", `${path}?wait=offline&timeout=60`)
          const waiting = yield* Effect.forkChild(wait, { startImmediately: true })
          yield* expectStatus(admin, 200, "PATCH", path, { body: { labels: { team: "b" } } })
          assertError(yield* Fiber.join(waiting), 404)
          yield* eventually(Effect.sync(() => console.ws.readyState === console.ws.CLOSED))
          assertError(yield* key.request("PATCH", path, { body: { labels: { team: "a" } } }), 404)
          yield* expectStatus(admin, 200, "DELETE", path)
        })
    )

    it.effect("a creation stops waiting when its key is revoked", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const key = yield* keyed("Operator", every)
        const creation = key.request("POST", "/api/servers", {
          body: { blueprint_id: "endless" },
          headers: { prefer: "wait=60" }
        })
        const waiting = yield* Effect.forkChild(creation, { startImmediately: true })
        yield* eventually(
          Effect.map(
            expectStatus(admin, 200, "GET", "/api/servers?blueprint_id=endless"),
            ({ json }) => json
          ),
          (found) => found.length === 1
        )
        yield* expectStatus(admin, 200, "DELETE", `/api/keys/${key.id}`)
        const { json, status } = yield* Fiber.join(waiting)
        assert.strictEqual(status, 202)
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${json.id}?force=true`)
      })
    )

    it.effect("quotas: a creation and a larger memory limit beyond them are 403 with the current use", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const key = yield* keyed("Operator", { ...every, max_servers: 2, max_memory: 300 })
        const post = (memory_limit: number) =>
          key.request("POST", "/api/servers", {
            body: { blueprint_id: "kept", overrides: { limits: { memory_limit } } }
          })
        assertError(yield* post(0), 403, /at most 300 MiB of memory \(max_memory\); the server has no/)
        const { json: first } = yield* post(200)
        assertError(
          yield* post(101),
          403,
          "quota of the API key: at most 300 MiB of memory (max_memory): 200 MiB in use, 101 MiB requested"
        )
        const { json: second } = yield* post(100)
        const full = "quota of the API key: at most 2 servers (max_servers): 2 exist"
        assertError(yield* post(1), 403, full)
        const planned = yield* key.request("POST", "/api/servers?dry_run=true", {
          body: { blueprint_id: "kept" }
        })
        assertError(planned, 403, full)
        const raise = (id: string, memory_limit: number) =>
          key.request("PATCH", `/api/servers/${id}`, { body: { overrides: { limits: { memory_limit } } } })
        yield* eventually(
          Effect.map(admin.request("GET", `/api/servers/${first.id}/status`), ({ json }) => json.status),
          (status) => status === "offline"
        )
        assertError(yield* raise(first.id, 201), 403, /: 100 MiB in use, 201 MiB requested$/)
        const foreign = yield* create(admin, "kept", { overrides: { limits: { memory_limit: 10 } } })
        assertError(yield* raise(foreign, 11), 403, /which another key has created$/)
        yield* expectStatus(key, 200, "PATCH", `/api/servers/${first.id}`, {
          body: { overrides: { limits: { memory_limit: 150 } } }
        })
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${second.id}?force=true`)
        assert.strictEqual((yield* post(150)).status, 202)
      })
    )

    it.effect(
      "a memory limit is not so small that it counts as none, nor extended by swap or oom_disabled",
      () =>
        Effect.gen(function* () {
          const admin = yield* Muster
          const key = yield* keyed("Operator", { ...every, max_memory: 300 })
          const id = yield* create(key, "kept")
          const refused = Effect.fnUntraced(function* (limits: object, status: 403 | 422, detail: string) {
            const body = { overrides: { limits } }
            const creation = { body: { blueprint_id: "kept", ...body } }
            for (const query of ["", "?dry_run=true"])
              assertError(yield* key.request("POST", `/api/servers${query}`, creation), status, detail)
            assertError(yield* key.request("PATCH", `/api/servers/${id}`, { body }), status, detail)
          })
          const field = "body field overrides.limits.memory_limit: Expected 0, or a value of at least 1"
          for (const memory_limit of [1e-9, 0.999]) yield* refused({ memory_limit }, 422, field)
          const beyond = (fields: string) =>
            `quota of the API key: at most 300 MiB of memory (max_memory), which do not count what ${fields} would allow beyond blueprint kept`
          for (const swap of [-1, 1]) yield* refused({ swap }, 403, beyond("limits.swap"))
          yield* refused({ swap: -1, oom_disabled: true }, 403, beyond("limits.swap and limits.oom_disabled"))
          const limits = { memory_limit: 1, swap: 0, oom_disabled: false }
          yield* expectStatus(key, 200, "PATCH", `/api/servers/${id}`, { body: { overrides: { limits } } })
          yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
        })
    )

    it.effect(
      "a key limited to blueprints runs their code only: other software, images and files are 403",
      () =>
        Effect.gen(function* () {
          const admin = yield* Muster
          const key = yield* keyed("Operator", { ...every, blueprints: ["patched"] })
          const foreign = { parser: "file", find: { echo: "wget evil.example.com" } }
          const refused: ReadonlyArray<readonly [overrides: object, fields: string]> = [
            [{ software: "endless" }, "overrides.software"],
            [{ version: "2.0", image: "evil.example.com/x" }, "overrides.image"],
            [{ software: "endless", image: "evil.example.com/x" }, "overrides.software, overrides.image"],
            [{ configs: { "./server.sh": foreign } }, 'overrides.configs["./server.sh"]']
          ]
          const detail = (right: string, fields: string) =>
            `the API key lacks: ${right}: it is limited to blueprints, and ${fields} would run other code than blueprint patched`
          const own = {
            software: "game",
            version: "2.0",
            env: { A: "1" },
            configs: { "./game.properties": { find: { motd: "other" } } }
          }
          const id = yield* create(key, "patched", { overrides: own })
          const changed = yield* create(admin, "patched", {
            overrides: { image: "admin.example.com/x", configs: { "server.sh": foreign } }
          })
          for (const [overrides, fields] of refused) {
            const body = { blueprint_id: "patched", overrides }
            for (const query of ["", "?dry_run=true"])
              assertError(
                yield* key.request("POST", `/api/servers${query}`, { body }),
                403,
                detail("create", fields)
              )
            for (const server of [id, changed])
              assertError(
                yield* key.request("PATCH", `/api/servers/${server}`, { body: { overrides } }),
                403,
                detail("change", fields)
              )
          }
          for (const [server, overrides] of [
            [id, own],
            [changed, { version: "3.0", stop_timeout: 5 }],
            [changed, { image: null, configs: { "server.sh": null } }]
          ] as const)
            yield* expectStatus(key, 200, "PATCH", `/api/servers/${server}`, { body: { overrides } })
          for (const server of [id, changed])
            yield* expectStatus(admin, 200, "DELETE", `/api/servers/${server}?force=true`)
        })
    )

    it.effect("limits belong to the scopes Operator and ReadOnly, quotas to Operator", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        for (const body of [
          { scope: "AppAdmin", servers: ["a"] },
          { scope: "Metrics", labels: { team: "a" } },
          { scope: "ReadOnly", max_servers: 1 },
          { scope: "Operator", servers: [] },
          { scope: "Operator", labels: {} },
          { scope: "Operator", max_memory: 0 }
        ])
          assertError(yield* admin.request("POST", "/api/keys", { body: { name: "x", ...body } }), 422)
        const limits = { blueprints: ["kept"], labels: { team: "a" }, max_servers: 3, max_memory: 1024 }
        const { id } = yield* keyed("Operator", limits)
        const { json } = yield* expectStatus(admin, 200, "GET", "/api/keys")
        assert.deepInclude(
          json.find((one: { readonly id: string }) => one.id === id),
          limits
        )
      })
    )
  })
})
