import { execFileSync, spawnSync } from "node:child_process"
import { readFileSync, symlinkSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { alone, connectedNode, freePort, nodeIs, startNode } from "../support/nodes.ts"
import { mainProcess } from "../support/processes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, commands, create, expectStatus, logsHave, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")

const git = (...args: ReadonlyArray<string>) => spawnSync("git", args, { cwd: root, encoding: "utf8" })
/** The tag of the newest release before this commit; undefined: there is none. */
const PREVIOUS = git("tag", "--list", "--merged", "HEAD", "--sort=-version:refname")
  .stdout?.split("\n")
  .find((tag) => /^v?\d+\.\d+\.\d+$/.test(tag))
const note = PREVIOUS === undefined ? " (skipped: needs the tag of a release; git fetch --tags)" : ""

/** The main module of the previous version, with the packages of this one. */
const previous = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const archive = execFileSync("git", ["archive", PREVIOUS ?? "HEAD", "src", "package.json"], {
    cwd: root,
    maxBuffer: 256 * 1024 * 1024
  })
  execFileSync("tar", ["-x", "-C", folder], { input: archive })
  const dependenciesOf = (path: string) =>
    JSON.parse(readFileSync(join(path, "package.json"), "utf8")).dependencies
  assert.deepInclude(
    dependenciesOf(root),
    dependenciesOf(folder),
    "the previous version needs other packages"
  )
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"))
  return join(folder, "src/main.ts")
})

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** Everything that the previous version has for a server works. */
const serverWorks = Effect.fnUntraced(function* (api: Service) {
  const stream = yield* subscribe(api)
  const id = yield* running(api, "kept")
  const path = `/api/servers/${id}`
  assert.strictEqual((yield* commands(api, id, "hello")).status, 204)
  yield* logsHave(api, id, "got hello ")
  const { json: stats } = yield* expectStatus(api, 200, "GET", `${path}/stats`)
  assert.strictEqual(stats.state, "running")
  yield* expectStatus(api, 200, "GET", `${path}/install`)
  yield* commands(api, id, "exit 3")
  yield* becomes(api, id, "offline")
  const patch = { overrides: { env: { MOTD: "changed" } } }
  yield* expectStatus(api, 200, "PATCH", path, { body: patch })
  yield* powered(api, id, "start")
  yield* becomes(api, id, "running")
  yield* powered(api, id, "stop")
  yield* becomes(api, id, "offline")
  yield* expectStatus(api, 202, "POST", `${path}/reinstall`)
  yield* eventually(expectStatus(api, 200, "GET", `${path}/install`), ({ json }) => json.phase === "ready")
  yield* becomes(api, id, "offline")
  yield* expectStatus(api, 200, "DELETE", path)
  yield* eventually(
    () => stream.of(id),
    (seen) => seen.at(-1) === "deleted"
  )
  const up = ["installing", "offline", "starting", "running"]
  assert.deepStrictEqual(stream.of(id), [
    ...up,
    ...[
      "crash exit code 3",
      "offline",
      "starting",
      "running",
      "stopping",
      "offline",
      "installing",
      "offline"
    ],
    "deleted"
  ])
})

describe.runIf(PREVIOUS !== undefined)(`docs/deployment.md, Upgrade a fleet${note}`, () => {
  it.live(
    "this service and the previous daemon: servers are created, changed, watched and deleted",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env } })
        const node = yield* connectedNode(api, "old", { main: yield* previous })
        yield* serverWorks(api)
        // The service names the version that the daemon has.
        const { json } = yield* expectStatus(api, 200, "GET", "/api/nodes/old")
        assert.match(json.version, /^\d+\.\d+\.\d+/)
        assert.notInclude(node.output(), "ERROR")
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "the previous service and this daemon, the state during an upgrade: all of that works",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env }, main: yield* previous })
        const node = yield* connectedNode(api, "new")
        yield* serverWorks(api)
        assert.notInclude(node.output(), "ERROR")
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "nodes first, then the service: the processes of servers run on, and a stream that resumes misses no event",
    () =>
      Effect.gen(function* () {
        const main = yield* previous
        const { env } = yield* definitions(files)
        const dataDir = join(yield* temporaryFolder, "service")
        const port = String(yield* freePort)
        const settings = { ...alone, ...env, MUSTER_PORT: port }
        const before = yield* startService({ dataDir, env: settings, main })
        const nodeDir = join(yield* temporaryFolder, "node")
        const keep = { MUSTER_NODE_ON_SHUTDOWN: "keep" }
        const old = yield* connectedNode(before, "n1", { main, dataDir: nodeDir, env: keep })
        const id = yield* running(before, "kept")
        const offline = yield* create(before, "kept")
        yield* becomes(before, offline, "offline")
        const seen = yield* subscribe(before, "/api/events?cursor=0")
        yield* eventually(
          () => seen.events().length,
          (count) => count === 6
        )
        const process = yield* mainProcess(nodeDir, id)
        assert.isDefined(process)

        yield* old.kill("SIGTERM")
        yield* startNode({ control: before.url, key: old.key, id: "n1", dataDir: nodeDir, env: keep })
        yield* nodeIs(before, "n1", true)
        yield* eventually(commands(before, id, "new daemon"), ({ status }) => status === 204)
        yield* logsHave(before, id, "got new daemon")
        assert.deepStrictEqual(yield* mainProcess(nodeDir, id), process)

        const cursor = seen.events().at(-1)?.Cursor
        yield* before.kill("SIGTERM")
        const after = yield* startService({ dataDir, env: settings })
        yield* nodeIs(after, "n1", true)
        const resumed = yield* subscribe(after, `/api/events?cursor=${cursor}`)
        yield* eventually(commands(after, id, "new service"), ({ status }) => status === 204)
        yield* logsHave(after, id, "got new service")
        assert.deepStrictEqual(yield* mainProcess(nodeDir, id), process)
        for (const server of [id, offline]) {
          yield* powered(after, server, server === id ? "restart" : "start")
          yield* becomes(after, server, "running")
        }
        yield* eventually(
          () => resumed.of(offline),
          (events) => events.join() === "starting,running"
        )
        yield* eventually(
          () => resumed.of(id),
          (events) => events.join() === "stopping,offline,starting,running"
        )
        for (const server of [id, offline])
          yield* expectStatus(after, 200, "DELETE", `/api/servers/${server}`)
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "docs/running.md, Upgrade without downtime: replicas of both versions create, change and delete servers",
    () =>
      Effect.gen(function* () {
        const set = yield* replicaSet((yield* definitions(files)).env)
        const before = yield* set.start({}, yield* previous)
        const { json } = yield* expectStatus(before, 201, "POST", "/api/keys", {
          body: { name: "n1", scope: "Node" }
        })
        yield* connectedNode(before, "n1", { key: json.key })
        const first = yield* create(before, "kept")
        const after = yield* set.start()
        const second = yield* create(after, "kept")
        const third = yield* create(before, "kept")
        const patch = { overrides: { env: { MOTD: "changed" } } }
        for (const api of [before, after]) {
          for (const id of [first, second, third]) {
            yield* becomes(api, id, "offline")
            yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: patch })
            yield* powered(api, id, "start")
            yield* becomes(api, id, "running")
            yield* powered(api, id, "stop")
          }
        }
        yield* expectStatus(before, 200, "DELETE", `/api/servers/${second}`)
        yield* expectStatus(after, 200, "DELETE", `/api/servers/${third}`)
        for (const api of [before, after, yield* set.start()]) {
          const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")
          assert.deepStrictEqual(json, [first])
        }
        for (const api of [before, after]) assert.notInclude(api.output(), "ERROR")
      }).pipe(Effect.scoped),
    120_000
  )
})
