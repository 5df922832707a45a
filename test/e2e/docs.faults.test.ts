import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { checkout, npmStart, type Started } from "../support/checkout.ts"
import { startChild } from "../support/child.ts"
import { cells } from "../support/command.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed, root } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { freeAllocations, freePorts } from "../support/ports.ts"
import { endLeftovers } from "../support/processes.ts"
import { ended, requestTo, startService } from "../support/Service.ts"
import { becomes, commands, expectStatus, installed, logsHave, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** `npm start` in a fresh checkout; the commands below run beside it. */
class Installed extends Context.Service<Installed, Started>()("test/Installed") {
  static readonly layer = Layer.effect(Installed, Effect.flatMap(checkout, npmStart))
}

/** Runs a printed block in the folder of the service to its end and returns its standard output. */
const run = Effect.fnUntraced(function* (
  block: string,
  { folder, ...options }: { readonly folder: string; readonly env?: Record<string, string> }
) {
  const child = yield* startChild(["bash", "-ec", block], { cwd: folder, ...options })
  assert.strictEqual(yield* child.exited(), 0, child.output())
  return child.stdout()
}, Effect.scoped)

layer(Installed.layer, { excludeTestServices: true, timeout: "60 seconds" })("docs", (it) => {
  describe("api.md", () => {
    it.effect("Call a route: a list, and an error with its five fields", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const output = yield* run(service.asPrinted(printed("docs/api.md", "call")), service)
        const [nodes = "", error = ""] = output.split("\n")
        assert.strictEqual(JSON.parse(nodes)[0].name, "local")
        assert.hasAllKeys(JSON.parse(error), ["code", "status", "detail", "hint", "request_id"])
      })
    )

    it.effect(
      "Follow a server from creation to deletion: works as printed",
      () =>
        Effect.gen(function* () {
          const service = yield* Installed
          const child = yield* startChild(["sh", "-s"], { cwd: service.folder })
          yield* child.write(service.asPrinted(printed("docs/api.md", "tour-watch")))
          yield* child.prints(/^: connected$/m)
          yield* child.write(service.asPrinted(printed("docs/api.md", "tour-run")))
          yield* child.write(service.asPrinted(printed("docs/api.md", "tour-end")))
          yield* child.endInput
          assert.strictEqual(yield* child.exited("60 seconds"), 0, child.output())
          const output = child.output()
          const passing = /^created (\w+)$/m.exec(output)?.[1]
          const events = [...output.matchAll(/"server_id":"(\w+)","payload":("\w+"|\{|null)/g)]
          const of = (isOf: (id?: string) => boolean) =>
            events.filter(([, id]) => isOf(id)).map(([, , payload]) => payload)
          const steps = ['"installing"', '"offline"', '"starting"', '"running"']
          assert.deepStrictEqual(
            of((id) => id === passing),
            [...steps, "{", '"offline"', "null"]
          )
          assert.deepStrictEqual(
            of((id) => id !== passing),
            [...steps, '"stopping"', '"offline"', "null"]
          )
          assert.match(output, /"exit_code":3/)
          assert.match(output, /"data":\[.*"demo: ready on .*"\[Server\] hello"\]\}/)
          assert.deepStrictEqual((yield* service.request("GET", "/api/servers")).json, [])
        }).pipe(Effect.scoped),
      90_000
    )

    it.effect("Receive events: past events, with an id", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        yield* expectStatus(
          service,
          200,
          "DELETE",
          `/api/servers/${yield* running(service, "demo-saved")}?force=true`
        )
        const command = service.asPrinted(printed("docs/api.md", "events"))
        const child = yield* startChild(["bash", "-c", command], { cwd: service.folder })
        assert.strictEqual(yield* child.exited(), 28) // --max-time has ended curl
        assert.match(child.stdout(), /^id: \d+$/m)
        assert.notInclude(child.stdout(), '"Topic":"deleted"')
      }).pipe(Effect.scoped)
    )
  })

  it.effect("api.md, Receive events over WebSocket: past events, one in each message", () =>
    Effect.gen(function* () {
      const service = yield* Installed
      const id = yield* installed(service, "demo-saved")
      const output = yield* run(service.asPrinted(printed("docs/api.md", "websocket")), service)
      const events = output
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line))
      const statuses = events.filter(({ Data }) => Data.server_id === id).map(({ Data }) => Data.payload)
      assert.deepStrictEqual(statuses, ["installing", "offline"])
      yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
    }).pipe(Effect.scoped)
  )

  describe("audit.md", () => {
    it.effect("Find out who deleted a server", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const ID = yield* installed(service, "demo", { overrides: { save: true } })
        yield* expectStatus(service, 200, "DELETE", `/api/servers/${ID}`)
        const env = { MUSTER: service.url, AUTH: `Authorization: Bearer ${service.key}`, ID }
        const output = yield* run(printed("docs/audit.md", "deletion"), { folder: service.folder, env })
        const [entry, ...others] = JSON.parse(output)
        assert.deepStrictEqual(entry.object, { kind: "server", id: ID })
        assert.strictEqual(entry.actor.scope, "AppAdmin")
        assert.deepStrictEqual(others, [])
      })
    )
  })

  describe("keys.md", () => {
    it.effect("Create, list and revoke a key while the service runs", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const [create = "", list = "", revoke = "", ...more] = printed("docs/keys.md", "keys")
          .trim()
          .split("\n")
        assert.deepStrictEqual(more, [])
        const made = yield* run(create, service)
        assert.match(made, /^mst_[A-Za-z0-9]{49}\n$/)
        const key = made.trim()
        yield* expectStatus(service, 200, "GET", "/api/nodes", { key })
        const [id = "", scope, state] = cells(yield* run(list, service)).find((row) => row[3] === "ci") ?? []
        assert.strictEqual(scope, "AppAdmin")
        assert.match(`${id} ${state}`, /^key_\w+ valid until 20/)
        yield* run(revoke.replace("<id>", id), service)
        yield* expectStatus(service, 401, "GET", "/api/nodes", { key })
      })
    )

    it.effect("Choose a scope: the key has exactly the rights that are printed", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const key = (yield* run(printed("docs/keys.md", "rights"), service)).trim()
        yield* expectStatus(service, 200, "GET", "/api/nodes", { key })
        yield* expectStatus(service, 403, "POST", "/api/servers/power", { key, body: {} })
      })
    )

    it.effect("Limit a key to some servers: it creates servers within its limits only", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const key = (yield* run(printed("docs/keys.md", "limits"), service)).trim()
        const body = { blueprint_id: "paper" }
        yield* expectStatus(service, 403, "POST", "/api/servers?dry_run=true", { key, body })
        const labelled = { ...body, labels: { team: "a" } }
        yield* expectStatus(service, 200, "POST", "/api/servers?dry_run=true", { key, body: labelled })
      })
    )

    it.effect("Give a key files of servers: a key has its folders, another one reads only", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const keys = (yield* run(printed("docs/keys.md", "files"), service)).trim().split("\n")
        const own = yield* Effect.forEach(keys, (key) =>
          Effect.map(expectStatus(service, 200, "GET", "/api/keys/self", { key }), ({ json }) => json)
        )
        assert.deepStrictEqual(
          own.map(({ paths, rights }) => [rights, paths]),
          [
            [
              ["read", "power", "browse", "files"],
              ["/plugins", "/config"]
            ],
            [["read", "browse"], undefined]
          ]
        )
      })
    )

    it.effect("Give a key backups: it makes and reads them, and nothing else", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const key = (yield* run(printed("docs/keys.md", "backups"), service)).trim()
        const { json } = yield* expectStatus(service, 200, "GET", "/api/keys/self", { key })
        assert.deepStrictEqual(json.rights, ["read", "backups"])
      })
    )

    it.effect("Share a quota between keys: its servers count together", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const lines = (yield* run(printed("docs/keys.md", "quotas"), service)).trim().split("\n")
        assert.match(lines.at(-1) ?? "", /^team-a +0 of 10 +0 of 20480 MiB /)
        const key = lines.find((line) => line.startsWith("mst_")) ?? ""
        const { json } = yield* expectStatus(service, 200, "GET", "/api/keys/self", { key })
        assert.deepInclude(json.quota, { name: "team-a", max_servers: 10, max_memory: 20480 })
      })
    )

    it.effect("Get the first key", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        assert.strictEqual((yield* run(printed("docs/keys.md", "first"), service)).trim(), service.key)
      })
    )
  })

  describe("git-sources.md", () => {
    it.effect("Check the sources", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const command = service.asPrinted(printed("docs/git-sources.md", "sources"))
        assert.deepStrictEqual(JSON.parse(yield* run(command, service)), [])
      })
    )
  })

  describe("database.md", () => {
    it.effect("Show the state of the database and back it up while the service runs", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const status = yield* run(printed("docs/database.md", "status"), service)
        assert.match(status, /^Database: SQLite .*muster\.db\nSchema: \d+ .*up to date\nJournal: /)
        yield* run(printed("docs/database.md", "backup"), service)
        assert.isTrue(existsSync(join(service.folder, "backup.db")))
      })
    )

    it.effect("Share the secret between replicas: the file is long enough", () =>
      Effect.gen(function* () {
        const file = join(yield* temporaryFolder, "secret")
        yield* run(printed("docs/database.md", "secret").replace("/etc/muster/secret", file), {
          folder: "/"
        })
        assert.lengthOf(Buffer.from(readFileSync(file, "utf8"), "base64"), 32)
      }).pipe(Effect.scoped)
    )
  })

  describe("operations.md", () => {
    it.effect("Add a blueprint: both files load and run", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        yield* writeFiles(service.folder, {
          "software/echo.yml": printed("docs/running.md", "software"),
          "blueprints/echo.yml": printed("docs/running.md", "blueprint")
        })
        yield* run(service.asPrinted(printed("docs/running.md", "reload")), service)
        const id = yield* running(service, "echo")
        assert.strictEqual((yield* commands(service, id, "anyone there?")).status, 204)
        yield* logsHave(service, id, "anyone there?")
        yield* powered(service, id, "stop")
        yield* becomes(service, id, "offline")
        yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
        yield* becomes(service, id, "gone")
      })
    )

    it.effect("Stop the service: the command starts the servers that are offline", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const id = yield* running(service, "demo-saved")
        yield* powered(service, id, "stop")
        yield* becomes(service, id, "offline")
        yield* run(service.asPrinted(printed("docs/running.md", "start-all")), service)
        yield* becomes(service, id, "running")
        yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
        yield* becomes(service, id, "gone")
      })
    )

    it.effect("Roll out a change: the plan, the rollout and its progress", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const id = yield* installed(service, "demo-saved")
        const output = yield* run(service.asPrinted(printed("docs/running.md", "rollout")), service)
        // The server has the definition already.
        assert.isTrue(output.startsWith('{"total":1,"up_to_date":1,"servers":[]}'), output)
        const [rollout] = JSON.parse(output.slice(output.lastIndexOf("[{")))
        assert.deepStrictEqual([rollout.state, rollout.total, rollout.done], ["done", 1, 1])
        yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
        yield* becomes(service, id, "gone")
      })
    )

    it.effect("Schedules: the plan, the schedule of a restart, other steps, and its runs", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const output = yield* run(printed("docs/schedules.md", "restart"), service)
        assert.match(output, /^Next times:\n {2}\S+T0[23]:00:00\.000Z/)
        assert.include(output, "Problem: no server matches the selector today")
        assert.match(
          output,
          /^ID +NAME +CRON +TIMEZONE +SERVERS +SOURCE +NEXT +LAST\n\S+ +restart label=team=a +0 4 \* \* \* /m
        )
        const made = yield* run(printed("docs/schedules.md", "create"), service)
        assert.match(
          made,
          /^steps: +warn=5m,1m:say Upgrade in \{\{left\}\}; power=stop; wait-for=offline:2m; upgrade; power=start;/m
        )
        const id = /^id: +(\S+)$/m.exec(made)?.[1] ?? ""
        const runs = yield* run(printed("docs/schedules.md", "runs"), {
          folder: service.folder,
          env: { SCHEDULE: id }
        })
        assert.match(runs, /^next: +paused$/m)
        const all = (yield* expectStatus(service, 200, "GET", "/api/schedules")).json
        for (const one of all) {
          // The others are those of the shipped blueprints.
          if (one.source !== "api") continue
          yield* eventually(
            expectStatus(service, 200, "GET", `/api/schedules/${one.id}`),
            ({ json }) => json.last_run?.state !== "running"
          )
          yield* expectStatus(service, 200, "DELETE", `/api/schedules/${one.id}`)
        }
      })
    )

    it.effect("Drain a node: the command finds the service by its socket, and undrain ends the drain", () =>
      Effect.gen(function* () {
        const service = yield* Installed
        const output = yield* run(printed("docs/running.md", "drain"), service)
        assert.match(output, /^ID +NAME +LOCATION +STATE +SERVERS\n\S+ +local +local +connected +0\n/)
        const id = yield* installed(service, "demo-saved")
        assert.match(
          yield* run(printed("docs/nodes.md", "plan"), service),
          new RegExp(`^${id} +- +no nodes available`, "m")
        )
        assert.include(
          yield* run(printed("docs/nodes.md", "choices"), service),
          "Node local is drained; 1 server to move."
        )
        const [{ id: node_id }] = (yield* expectStatus(service, 200, "GET", "/api/nodes")).json
        const { json } = yield* expectStatus(service, 200, "GET", `/api/nodes/${node_id}`)
        assert.deepInclude(json.move, { parallel: 4, left: 1 })
        yield* expectStatus(service, 200, "PATCH", `/api/nodes/${node_id}/drained`, {
          body: { drained: false }
        })
        yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
        const [node] = (yield* expectStatus(service, 200, "GET", "/api/nodes")).json
        assert.isFalse(node.drained)
      })
    )
  })
})

describe("docs/nodes.md and docs/docker.md", () => {
  it.live(
    "a control plane, a key and a node as printed: the node is connected until its key is revoked",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        const [port, daemonPort, first] = [yield* freePort, yield* freePort, yield* freePorts(4)]
        const url = `http://127.0.0.1:${port}`
        const started = (block: string, env: Record<string, string>) =>
          startChild(["bash", "-c", block], { cwd: folder, env })
        const control = yield* started(printed("docs/nodes.md", "control"), { MUSTER_PORT: String(port) })
        yield* control.prints(/listens on http:[\s\S]*\/docs/)
        const here = { folder }
        assert.include(yield* run(`${printed("docs/nodes.md", "list").trim()} 2>&1`, here), "No nodes")
        const key = (yield* run(printed("docs/nodes.md", "key"), here)).trim()

        const dataDir = join(yield* temporaryFolder, "node")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const command = printed("docs/nodes.md", "node")
          .replace("https://muster.example.com", url)
          .replace("mst_...", key)
          .replaceAll("10.0.0.7", "127.0.0.1")
          .replace("5585", String(daemonPort))
          .replace("25565-25664", `${first}-${first + 3}`)
        // The printed Docker settings are added to those of a node.
        const docker = printed("docs/docker.md", "node").replace("npm run -s muster -- node\n", "")
        const env = { MUSTER_DATA_DIR: dataDir, MUSTER_NODE_PORT: String(daemonPort) }
        const node = yield* started(`${docker.trim()} ${command}`, env)
        yield* node.prints(/node \S+, listens on/)

        const list = printed("docs/nodes.md", "list")
        const is = (state: RegExp) => eventually(run(list, here), (output) => state.test(output))
        yield* is(/ connected[ ,]/)
        const [detail] = JSON.parse(yield* run(printed("docs/nodes.md", "unreachable"), here))
        assert.isTrue(detail.connected)

        const beta = (yield* run("npm run -s muster -- keys create --name beta --scope Node", here)).trim()
        const second = printed("docs/nodes.md", "second")
          .replace("mst_...", beta)
          .replace("5586", String(yield* freePort))
        yield* Effect.addFinalizer(() => endLeftovers(join(folder, "data-beta")))
        yield* started(second, {})
        yield* is(/ beta +local +connected[ ,]/)

        const id = cells(yield* run("npm run -s muster -- keys list", here)).find((row) => row[3] === "alpha")
        yield* run(printed("docs/nodes.md", "replace").replace("<id>", id?.[0] ?? ""), here)
        yield* is(/ key revoked/)
      }).pipe(Effect.scoped),
    120_000
  )
})

describe("docs/running.md, Start in a folder of your own", () => {
  it.live("as printed: the service has the examples", () =>
    Effect.gen(function* () {
      const home = yield* temporaryFolder
      const command = printed("docs/running.md", "init").replaceAll("/opt/muster", root)
      const child = yield* startChild(["bash", "-ec", command], {
        cwd: "/",
        env: { HOME: home, MUSTER_PORT: "0", ...(yield* freeAllocations(1)) }
      })
      const [, url = ""] = yield* child.prints(/listens on (http:\S+)[\s\S]*\/docs/)
      const key = readFileSync(join(home, "servers/data/admin.key"), "utf8").trim()
      yield* expectStatus({ request: requestTo(url, key) }, 200, "GET", "/api/blueprints/demo-saved")
      assert.notInclude(child.output(), "no blueprints")
      yield* child.signalAll("SIGINT")
      yield* child.exited()
    }).pipe(Effect.scoped)
  )
})

describe("docs/running.md, signals", () => {
  it.live("as printed: one signal reloads, the other ends the service", () =>
    Effect.gen(function* () {
      const service = yield* startService()
      const env = { PID: String(service.process.pid) }
      yield* run(printed("docs/running.md", "hangup"), { folder: "/", env })
      yield* eventually(Effect.sync(service.output), (output) => /SIGHUP/.test(output))
      yield* run(printed("docs/running.md", "stop"), { folder: "/", env })
      yield* ended(service.process)
      assert.strictEqual(service.process.exitCode, 0)
      assert.match(service.output().trimEnd().split("\n").at(-1) ?? "", /the service has ended/)
    }).pipe(Effect.scoped)
  )
})
