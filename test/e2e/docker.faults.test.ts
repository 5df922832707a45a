import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import {
  blueprintFile,
  consoleServer,
  definitions,
  softwareFile,
  writeFiles
} from "../support/definitions.ts"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../support/dockerEngine.ts"
import { replay, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { freeAllocations, freePorts } from "../support/ports.ts"
import { endLeftovers } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  logsHave,
  logsOf,
  powered,
  running
} from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": consoleServer },
      extra: { images: { test: TEST_IMAGE }, mappings: [{ default: "test" }], runtimes: ["docker"] }
    }),
    "either.yml": softwareFile("either", {
      files: { "server.sh": consoleServer },
      extra: {
        images: { test: TEST_IMAGE },
        mappings: [{ default: "test" }],
        runtimes: ["docker", "process"]
      }
    }),
    "plain.yml": softwareFile("plain", { files: { "server.sh": consoleServer } }),
    // Each version has another base; the server writes a file of its own.
    "writing.yml": softwareFile("writing", {
      install: { script: 'echo "$VERSION" > version.txt' },
      files: {
        "server.sh": `[ -e own.txt ] || cat version.txt > own.txt
echo "version $(cat version.txt), written by $(cat own.txt)"
${consoleServer}`
      },
      extra: { images: { test: TEST_IMAGE }, mappings: [{ default: "test" }], runtimes: ["docker"] }
    })
  },
  blueprints: {
    "writing.yml": blueprintFile("writing", "writing"),
    "kept.yml": blueprintFile("kept", "game"),
    "either.yml": blueprintFile("either", "either"),
    "plain.yml": blueprintFile("plain", "plain")
  }
}

/** Containers of a node's servers, in any state. */
const containersOf = Effect.fnUntraced(function* (node: string) {
  const { docker } = yield* TestEngine
  const found = yield* Effect.promise(() =>
    docker.listContainers({ all: true, filters: { label: [`muster.node=${node}`] } })
  )
  return yield* Effect.forEach(
    found,
    ({ Id, Labels }) =>
      Effect.map(
        Effect.promise(() => docker.getContainer(Id).inspect()),
        ({ State }) => ({
          id: Id,
          server: Labels["muster.server"],
          running: State.Running,
          started_at: State.StartedAt
        })
      ),
    { concurrency: 4 }
  )
})

/** Removes the containers and networks of a test, also when it fails. */
const cleanNode = (node: string) =>
  Effect.gen(function* () {
    const { docker } = yield* TestEngine
    yield* Effect.addFinalizer(() =>
      Effect.flatMap(containersOf(node), (left) =>
        Effect.forEach(left, ({ id }) =>
          Effect.ignore(Effect.tryPromise(() => docker.getContainer(id).remove({ force: true })))
        )
      ).pipe(Effect.provideService(TestEngine, TestEngine.of({ docker, socket: "" })))
    )
  })

const list = (api: Service) =>
  Effect.map(expectStatus(api, 200, "GET", "/api/servers?include=status"), (answer) =>
    answer.json.map(({ id, status }: { readonly id: string; readonly status: string }) => `${id} ${status}`)
  )

const SERVERS = 8
const up = ["installing", "offline", "starting", "running"]

describe.runIf(withEngine)(`Docker, with the real commands${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect(
      `after kill -9 of a node, its ${SERVERS} containers run on and are adopted, and no event is lost or repeated`,
      () =>
        Effect.gen(function* () {
          const { socket } = yield* TestEngine
          const { env } = yield* definitions(files)
          const api = yield* startService({ env: { ...alone, ...env } })
          const id = `docker-${process.pid}`
          yield* cleanNode(id)
          const { key } = yield* nodeKey(api, id)
          const dataDir = join(yield* temporaryFolder, id)
          const first = yield* freePorts(SERVERS)
          const open = Effect.gen(function* () {
            const scope = yield* Scope.fork(yield* Effect.scope)
            const started = yield* Scope.provide(
              startNode({
                control: api.url,
                key,
                id,
                dataDir,
                env: {
                  MUSTER_NODE_RUNTIME: "docker",
                  MUSTER_DOCKER_SOCKET: socket,
                  MUSTER_DOCKER_PULL: "never",
                  MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${first}-${first + SERVERS - 1}`
                }
              }),
              scope
            )
            return { ...started, close: Scope.close(scope, Exit.void) }
          })
          const node = yield* open
          yield* nodeIs(api, id, true)
          const stream = yield* subscribe(api, "/api/events?cursor=0")
          const ids = yield* Effect.forEach(
            Array.from({ length: SERVERS }),
            () => create(api, "kept", { start: true }),
            { concurrency: 4 }
          )
          for (const server of ids) yield* becomes(api, server, "running", "90 seconds")
          for (const server of ids) assert.strictEqual((yield* commands(api, server, "before")).status, 204)
          const before = yield* containersOf(id)
          assert.sameMembers(
            before.map(({ server }) => server),
            ids
          )

          yield* node.kill("SIGKILL")
          assert.deepStrictEqual(yield* containersOf(id), before)
          const again = yield* open
          yield* eventually(
            Effect.sync(() => again.output()),
            (output) => output.includes("listens on")
          )
          yield* nodeIs(api, id, true)
          assert.deepStrictEqual(
            (yield* list(api)).toSorted(),
            ids.toSorted().map((server) => `${server} running`)
          )
          const after = yield* containersOf(id)
          const order = (all: typeof after) => all.toSorted((a, b) => (a.id < b.id ? -1 : 1))
          assert.deepStrictEqual(order(after), order(before))
          assert.isTrue(after.every((container) => container.running))

          for (const server of ids) {
            yield* eventually(commands(api, server, "after"), ({ status }) => status === 204)
            yield* logsHave(api, server, "got after ")
            assert.deepStrictEqual(yield* logsOf(api, server), ["ready", "got before ", "got after "])
          }
          const [stopped = "", killed = "", crashed = "", restarted = ""] = ids
          yield* powered(api, stopped, "stop")
          yield* powered(api, killed, "kill")
          yield* commands(api, crashed, "exit 7")
          yield* powered(api, restarted, "restart")
          for (const server of [stopped, killed, crashed]) yield* becomes(api, server, "offline")
          yield* eventually(
            Effect.sync(() => stream.of(restarted).length),
            (count) => count >= 8
          )

          const ends: Readonly<Record<string, ReadonlyArray<string>>> = {
            [stopped]: ["stopping", "offline"],
            [killed]: ["offline"],
            [crashed]: ["crash exit code 7", "offline"],
            [restarted]: ["stopping", "offline", "starting", "running"]
          }
          for (const server of ids) {
            assert.deepStrictEqual(stream.of(server), [...up, ...(ends[server] ?? [])])
          }
          const cursors = stream.events().map((event) => event.Cursor ?? 0)
          assert.strictEqual(new Set(cursors).size, cursors.length)
          assert.deepStrictEqual(yield* replay(api, cursors.at(-1) ?? 0), stream.events())

          for (const server of ids) yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
          assert.deepStrictEqual(yield* containersOf(id), [])
          yield* again.close
        }).pipe(Effect.scoped),
      180_000
    )

    it.effect(
      "with a Docker engine the embedded node has both runtimes",
      () =>
        Effect.gen(function* () {
          const { socket } = yield* TestEngine
          const { env } = yield* definitions(files)
          const dataDir = join(yield* temporaryFolder, "data")
          const allocations = yield* freeAllocations(4)
          const settings = {
            ...env,
            ...allocations,
            MUSTER_DOCKER_SOCKET: socket,
            MUSTER_DOCKER_PULL: "never"
          }
          const api = yield* startService({ dataDir, env: settings })
          yield* Effect.addFinalizer(() => endLeftovers(dataDir))
          assert.include(api.output(), `servers can run in containers: ${socket} responds`)
          const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          yield* cleanNode(node.id)
          const ids = [
            yield* running(api, "kept"),
            yield* running(api, "either"),
            yield* running(api, "plain")
          ]
          const [kept = "", either = "", plain = ""] = ids
          assert.sameMembers(
            (yield* containersOf(node.id)).map(({ server }) => server),
            [kept, either]
          )
          for (const id of ids) {
            yield* commands(api, id, "hello")
            yield* logsHave(api, id, "got hello ")
          }
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${plain}`)
          yield* api.kill("SIGTERM")
          assert.deepStrictEqual(yield* containersOf(node.id), [])
        }).pipe(Effect.scoped),
      90_000
    )

    it.effect(
      "spec 3.12: a container gets its new memory limit and version at its next start, and keeps its files",
      () =>
        Effect.gen(function* () {
          const { docker, socket } = yield* TestEngine
          const { blueprints, env } = yield* definitions(files)
          const dataDir = join(yield* temporaryFolder, "data")
          const settings = {
            ...env,
            ...(yield* freeAllocations(1)),
            MUSTER_DOCKER_SOCKET: socket,
            MUSTER_DOCKER_PULL: "never"
          }
          const api = yield* startService({ dataDir, env: settings })
          yield* Effect.addFinalizer(() => endLeftovers(dataDir))
          const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          yield* cleanNode(node.id)
          const id = yield* running(api, "writing")
          const container = Effect.gen(function* () {
            const [found] = yield* containersOf(node.id)
            const { Config, HostConfig } = yield* Effect.promise(() =>
              docker.getContainer(found?.id ?? "").inspect()
            )
            return { memory: (HostConfig.Memory ?? 0) / 1024 ** 2, env: Config.Env }
          })
          const path = `/api/servers/${id}`
          assert.strictEqual((yield* container).memory, 64)
          const { json: patched } = yield* expectStatus(api, 200, "PATCH", path, {
            body: { overrides: { limits: { memory_limit: 96 }, env: { MOTD: "new" } } }
          })
          assert.sameMembers(patched.pending, ["limits.memory_limit", "env.MOTD"])
          assert.strictEqual((yield* container).memory, 64)
          const changed = blueprintFile("writing", "writing", { server: { version: "2.0" } })
          yield* writeFiles(blueprints, { "writing.yml": changed })
          yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
          yield* expectStatus(api, 202, "POST", `${path}/upgrade`, { body: {} })
          yield* powered(api, id, "stop")
          yield* becomes(api, id, "offline")
          yield* powered(api, id, "start")
          yield* logsHave(api, id, "version 2.0, written by 1.0")
          yield* becomes(api, id, "running")
          const { env: variables, memory } = yield* container
          assert.strictEqual(memory, 96)
          assert.include(variables, "MOTD=new")
          const { json } = yield* expectStatus(api, 200, "GET", `${path}?include=definition,software`)
          assert.deepStrictEqual([json.version, json.definition.outdated, json.pending], ["2.0", false, []])
        }).pipe(Effect.scoped),
      90_000
    )
  })
})

describe("the embedded node without a Docker engine", () => {
  it.live("the node runs processes, shows its runtimes, and refuses servers that require a container", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const socket = join(yield* temporaryFolder, "none.sock")
      const allocations = yield* freeAllocations(2)
      const api = yield* startService({ env: { ...env, ...allocations, MUSTER_DOCKER_SOCKET: socket } })
      assert.match(api.output(), /servers cannot run in containers: .*none\.sock: no such socket/)
      const refused = yield* expectStatus(api, 503, "POST", "/api/servers", {
        body: { blueprint_id: "kept" }
      })
      assert.strictEqual(refused.json.detail, "no nodes available")
      assert.include(refused.json.hint, "1 without docker")
      for (const blueprint of ["either", "plain"]) {
        const id = yield* running(api, blueprint)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
      }
      const warnings = api
        .output()
        .split("\n")
        .filter((line) => line.includes("WARN"))
      assert.deepStrictEqual(
        warnings.filter((line) => /engine|container/i.test(line)),
        []
      )
    }).pipe(Effect.scoped)
  )
})
