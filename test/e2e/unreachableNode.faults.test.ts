import { existsSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { cells, muster } from "../support/command.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { tcpProxy } from "../support/faults/index.ts"
import { alone, connectedNode, forgetNode, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { type Answer, type Service, startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { becomes, create, expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** A control plane without an embedded node. */
class Control extends Context.Service<Control, Service>()("test/UnreachableControl") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      return yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "20" } })
    })
  )
}

const quick = { MUSTER_NODE_HEARTBEAT: "1" }
const options = { excludeTestServices: true, timeout: "60 seconds" } as const

/** Opens a free port and forwards its connections. */
const forward = (from: number, to: number): Effect.Effect<void, never, Scope.Scope> =>
  Effect.asVoid(
    Effect.acquireRelease(
      Effect.callback<() => void>((resume) => {
        const sockets = new Set<Socket>()
        const server = createServer((client) => {
          const upstream = connect({ port: to, host: "127.0.0.1" })
          for (const [one, other] of [
            [client, upstream],
            [upstream, client]
          ] as const) {
            sockets.add(one)
            one.on("error", () => other.destroy()).on("close", () => other.destroy())
            one.pipe(other)
          }
        })
        const close = () => {
          server.close()
          for (const socket of sockets) socket.destroy()
        }
        server.listen(from, "127.0.0.1", () => resume(Effect.succeed(close)))
      }),
      (close) => Effect.sync(close)
    )
  )

const detailOf = (api: Pick<Service, "request">, id: string) =>
  Effect.map(api.request("GET", `/api/nodes/${id}`), ({ json }) => json)

/** Waits until the node shows why it is unreachable. */
const unreachable = (api: Pick<Service, "request">, id: string) =>
  Effect.map(
    eventually(detailOf(api, id), (node) => node?.unreachable?.startsWith("http") === true),
    (node): string => node.unreachable
  )

const linesOf = (output: string, ...texts: ReadonlyArray<string>) =>
  output.split("\n").filter((line) => texts.every((text) => line.includes(text)))
const says = (process: { readonly output: () => string }, line: string) =>
  eventually(Effect.sync(process.output), (output) => output.includes(line))

const refuses = (answer: Answer, detail: string, hint: string) => {
  assert.strictEqual(answer.status, 503, answer.text)
  assert.strictEqual(answer.json.detail, detail)
  assert.include(answer.json.hint, hint)
}

layer(Control.layer, options)("unreachable nodes", (it) => {
  describe("spec 9.2: a node is called back", () => {
    it.effect(
      "a node with a wrong address gets no servers, both sides report it, and it recovers once the address is right",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "wrong")))
          const { key } = yield* nodeKey(api, "wrong")
          const [port, closed] = [yield* freePort, yield* freePort]
          const url = `http://127.0.0.1:${closed}`
          const node = yield* startNode({
            control: api.url,
            key,
            id: "wrong",
            env: {
              ...quick,
              MUSTER_NODE_PORT: String(port),
              MUSTER_NODE_URL: url,
              MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41000-41009"
            }
          })
          const why = `${url}: ECONNREFUSED. Check that the daemon runs, MUSTER_NODE_URL of the node, and the firewall`
          assert.strictEqual(yield* unreachable(api, "wrong"), why)
          assert.isFalse((yield* detailOf(api, "wrong")).connected)
          assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/nodes")).json, [
            { id: "wrong", name: "wrong", location: "local", url, drained: false }
          ])
          const post = (body: object) =>
            api.request("POST", "/api/servers", { body: { blueprint_id: "kept", ...body } })
          refuses(yield* post({}), "no nodes available", "1 node: 1 unreachable (wrong).")
          refuses(yield* post({ node_id: "wrong" }), "node is not connected: wrong", why)
          const warning = `node unreachable: it gets no servers: ${why} node_id=wrong`
          assert.strictEqual(linesOf(api.output(), warning).length, 1, api.output())
          yield* says(node, `the control plane cannot call this node and places no servers on it: ${why}`)

          const env = { MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
          const listed = yield* muster(["nodes", "list"], env)
          assert.deepInclude(cells(listed.stdout), ["wrong", "wrong", "local", "unreachable", "0"])
          assert.strictEqual(listed.stderr, `wrong cannot be called: ${why}\n`)
          const { stderr, stdout } = yield* muster(["nodes", "list", "--json"], env)
          assert.strictEqual(stderr, "")
          assert.deepInclude(JSON.parse(stdout)[0], { id: "wrong", connected: false, unreachable: why })

          yield* forward(closed, port)
          yield* nodeIs(api, "wrong", true)
          assert.isUndefined((yield* detailOf(api, "wrong")).unreachable)
          yield* installed(api, "kept")
          yield* says(api, "node reachable: it gets servers node_id=wrong")
          yield* says(node, "the control plane can call this node and places servers on it")
          assert.strictEqual(linesOf(api.output(), "node unreachable: ", "node_id=wrong").length, 1)
          assert.strictEqual(linesOf(node.output(), "registered with").length, 1)
        })
    )

    it.effect("a node with the wrong scheme is unreachable", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "scheme")))
        const { key } = yield* nodeKey(api, "scheme")
        const port = yield* freePort
        const url = `https://127.0.0.1:${port}`
        yield* startNode({
          control: api.url,
          key,
          id: "scheme",
          env: { ...quick, MUSTER_NODE_PORT: String(port), MUSTER_NODE_URL: url }
        })
        assert.match(
          yield* unreachable(api, "scheme"),
          /^https:.*: TLS fails .*Check the scheme of MUSTER_NODE_URL/
        )
        const removed = yield* muster(["nodes", "remove", "scheme", "--force", "--yes"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: api.key
        })
        assert.deepStrictEqual(removed, {
          code: 0,
          stdout: "Node scheme is removed.\n",
          stderr:
            "Node scheme still runs and registers again within seconds. Stop it, or revoke its key (`muster keys revoke`).\n"
        })
        assert.match(yield* unreachable(api, "scheme"), /TLS fails/, "it is back")
      })
    )

    it.effect("a node with the address of another node is unreachable, and both sides log the reason", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "second")))
        const first = yield* makeSimulatedNode({
          id: "first",
          key: (yield* nodeKey(api, "first")).key,
          control: [api.url],
          ports: "41100-41109",
          heartbeat: "500 millis"
        })
        yield* nodeIs(api, "first", true)
        const second = yield* startNode({
          control: api.url,
          key: (yield* nodeKey(api, "second")).key,
          id: "second",
          env: {
            ...quick,
            MUSTER_NODE_URL: first.url(),
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41110-41119"
          }
        })
        const why = `${first.url()}: another daemon responds there: it refuses the token of the node's last registration. Set MUSTER_NODE_URL of the node to its own address; it is now that of node first`
        assert.strictEqual(yield* unreachable(api, "second"), why)
        // The daemon may not have its token yet: then it must register again, which does not help here.
        const seen = new Set<string | undefined>()
        yield* eventually(
          Effect.tap(detailOf(api, "second"), (node) => Effect.sync(() => seen.add(node.unreachable))),
          () => linesOf(second.output(), "registered with").length > 2
        )
        assert.deepStrictEqual([...seen], [why])
        assert.strictEqual(linesOf(second.output(), "the control plane cannot call this node").length, 1)
        assert.include(second.output(), `places no servers on it: ${why}`)
        assert.strictEqual(linesOf(api.output(), "node unreachable: ", "node_id=second").length, 1)
        refuses(
          yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept", node_id: "second" } }),
          "node is not connected: second",
          why
        )
        assert.isTrue((yield* detailOf(api, "first")).connected)
        assert.strictEqual(first.registrations(), 1)
        const id = yield* create(api, "kept")
        assert.strictEqual((yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)).json.node_id, "first")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        yield* first.kill
        yield* first.post("/internal/disconnect")
      })
    )
  })

  describe("spec 9.4: failed calls", () => {
    it.effect(
      "a node that becomes unreachable while its heartbeats arrive gets no servers until it is reachable",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "later")))
          const port = yield* freePort
          const proxy = yield* tcpProxy(port)
          yield* connectedNode(api, "later", {
            env: {
              ...quick,
              MUSTER_NODE_PORT: String(port),
              MUSTER_NODE_URL: `http://127.0.0.1:${proxy.port}`,
              MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41200-41209"
            }
          })
          const id = yield* installed(api, "kept")
          yield* proxy.dropped.inject
          const answer = yield* api.request("GET", `/api/servers/${id}/stats`)
          assert.strictEqual(answer.status, 503, answer.text)
          assert.match(yield* unreachable(api, "later"), /: ECONNRESET\. Check/)
          refuses(
            yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } }),
            "no nodes available",
            "1 unreachable"
          )
          // Its heartbeats arrive, so its servers are not unknown.
          yield* becomes(api, id, "offline")
          yield* proxy.dropped.heal
          yield* nodeIs(api, "later", true)
          yield* installed(api, "kept")
        })
    )

    it.effect("a creation placed on it shows the reason for its delay; a drain that waits for it ends", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const name = "cut-off"
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, name)))
        const port = yield* freePort
        const proxy = yield* tcpProxy(port)
        yield* connectedNode(api, name, {
          env: {
            ...quick,
            MUSTER_NODE_PORT: String(port),
            MUSTER_NODE_URL: `http://127.0.0.1:${proxy.port}`,
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41250-41259"
          }
        })
        yield* proxy.dropped.inject
        const id = yield* create(api, "kept")
        const why = yield* unreachable(api, name)
        const install = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install`)
        assert.strictEqual(install.json.phase, "pending")
        assert.strictEqual(install.json.waiting_reason, `node ${name} cannot be called: ${why}`)
        refuses(
          yield* api.request("GET", `/api/servers/${id}/stats`),
          `node is not connected: ${name}`,
          `Its heartbeats arrive, but it cannot be called: ${why}`
        )

        const env = { MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
        const drained = yield* muster(["nodes", "drain", name, "--move", "--wait"], env)
        const away = `it cannot be called: ${why}`
        assert.deepStrictEqual(drained, {
          code: 1,
          stdout: `Node ${name} is drained; 1 server to move. None can leave it now: ${away}.\n1 server left: 1 blocked; ${away}\n`,
          stderr: `${id}: node ${name} cannot be called: ${why}\n1 server cannot leave ${name}: ${away}. They move once it is back; \`muster nodes undrain ${name}\` cancels that.\n`
        })

        yield* proxy.dropped.heal
        yield* nodeIs(api, name, true)
        yield* becomes(api, id, "offline")
        const after = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install`)
        assert.isUndefined(after.json.waiting_reason)
      })
    )
  })

  describe("spec 6.1: a revoked key", () => {
    it.effect("the node logs the reason, and the list of nodes shows it", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "keyless")))
        const { id, key } = yield* nodeKey(api, "keyless")
        const node = yield* connectedNode(api, "keyless", {
          key,
          env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41300-41309" }
        })
        yield* muster(["keys", "revoke", id], { MUSTER_DATA_DIR: api.dataDir })
        yield* says(
          node,
          "the control plane refuses this node's key: revoked or expired. Make one with: muster keys create --scope Node --name <name>, set MUSTER_NODE_KEY, start again"
        )
        yield* nodeIs(api, "keyless", false)
        assert.strictEqual((yield* detailOf(api, "keyless")).key, "revoked")
        const listed = yield* muster(["nodes", "list"], { MUSTER_URL: api.url, MUSTER_API_KEY: api.key })
        assert.deepInclude(cells(listed.stdout), ["keyless", "keyless", "local", "key revoked", "0"])
      })
    )
  })

  describe("spec 9.1: the heartbeat interval is too long", () => {
    it.effect("the node is refused, and logs the settings to change", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key } = yield* nodeKey(api, "rare")
        const node = yield* startNode({
          control: api.url,
          key,
          id: "rare",
          env: { MUSTER_NODE_HEARTBEAT: "20" }
        })
        yield* says(
          node,
          "the control plane refuses this node: MUSTER_NODE_HEARTBEAT is 20 s, and a node is lost here after 20 s without one (422). Set MUSTER_NODE_HEARTBEAT to 6 and start the node again, or raise MUSTER_NODE_HEARTBEAT_TIMEOUT of the service."
        )
        assert.strictEqual((yield* api.request("GET", "/api/nodes/rare")).status, 404)
      })
    )
  })

  describe("spec 9.7: one daemon for a data folder", () => {
    it.effect("a second daemon exits before it listens, and writes nothing", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "holder")))
        const dataDir = join(yield* temporaryFolder, "data")
        const node = yield* connectedNode(api, "holder", { dataDir, env: quick })
        const ended = yield* muster(["node"], {
          MUSTER_CONTROL_URL: api.url,
          MUSTER_NODE_KEY: node.key,
          MUSTER_NODE_PORT: "0",
          MUSTER_DATA_DIR: dataDir
        })
        assert.strictEqual(ended.code, 1)
        assert.strictEqual(
          ended.stderr,
          `${join(dataDir, "node")} is in use by process ${node.process.pid}; stop it or choose another data folder\n`
        )
        assert.strictEqual(ended.stdout, "")
        assert.isFalse(existsSync(join(dataDir, "node.id")))
        assert.isTrue((yield* detailOf(api, "holder")).connected)
      })
    )
  })
})

layer(Layer.empty, options)("unreachable nodes, on replicas", (it) => {
  it.effect("any remaining replica detects that a node is reachable", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const set = yield* replicaSet(env)
      const [one, other] = yield* Effect.all([set.start(), set.start()], { concurrency: 2 })
      const { key } = yield* set.key("shared", "Node")
      const closed = yield* freePort
      const node = yield* makeSimulatedNode({
        id: "shared",
        key,
        control: [one.url, other.url],
        ports: "41400-41409",
        heartbeat: "200 millis",
        registration: { url: `http://127.0.0.1:${closed}` }
      })
      for (const api of [one, other]) {
        assert.match(yield* unreachable(api, "shared"), /ECONNREFUSED/)
        refuses(
          yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } }),
          "no nodes available",
          "1 unreachable"
        )
      }
      const logs = () => linesOf(one.output() + other.output(), "node unreachable: ", "node_id=shared")
      assert.strictEqual(logs().length, 1)
      // The replica that received the registration.
      yield* one.kill("SIGKILL")
      yield* forward(closed, Number(new URL(node.url()).port))
      yield* nodeIs(other, "shared", true)
      yield* installed(other, "kept")
      yield* node.kill
    }).pipe(Effect.scoped)
  )
})
