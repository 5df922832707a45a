import { existsSync, readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import { isPublic } from "../../src/contract/domain/Journal.ts"
import type { ServerEvent } from "../../src/contract/domain/ServerEvent.ts"
import { nodeTokens, readDatabase } from "../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems, type ListedServer, processProblems } from "../support/invariants.ts"
import { makeNetwork, networksNote, wayInto, withNetworks } from "../support/netns.ts"
import { alone, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { mainProcess, serverProcesses } from "../support/processes.ts"
import { requestTo, type Service, startService } from "../support/Service.ts"
import { create, expectStatus, power } from "../support/servers.ts"

const SERVERS = 60
const DAEMON_PORT = 5585
const names = ["north", "south", "west"] as const

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

type Listed = ListedServer & { readonly node_id: string }

const list = (api: Service) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/servers?include=status,limits"),
    (answer): ReadonlyArray<Listed> => answer.json
  )

const statuses = (listed: ReadonlyArray<{ readonly id: string; readonly status: string }>) =>
  new Map(listed.map(({ id, status }) => [id, status]))

/** Whether data has arrived that the daemon has not read yet. */
const hasUnread = (pid: number | undefined) =>
  Effect.sync(() => {
    const table = `/proc/${pid}/net/tcp`
    const port = DAEMON_PORT.toString(16).toUpperCase()
    const lines = existsSync(table) ? readFileSync(table, "utf8").split("\n") : []
    return lines.some((line) =>
      new RegExp(`^\\s*\\d+: \\w+:${port} \\w+:\\w+ 01 \\w+:(?!00000000)`).test(line)
    )
  })

const cursorsOf = (events: ReadonlyArray<ServerEvent>) => events.map((event) => event.Cursor)

describe.runIf(withNetworks)(`spec 9.6: a network${networksNote}`, () => {
  it.live(
    `a disconnected node is lost within 40 s; reconnected, all ${SERVERS} statuses are right, no event is lost or repeated`,
    () =>
      Effect.gen(function* () {
        const network = yield* makeNetwork(names.length)
        const { env } = yield* definitions(files)
        const service = yield* startService({
          namespace: network.namespace,
          env: { ...env, ...alone, MUSTER_HOST: network.address, MUSTER_PORT: "5620" }
        })
        const url = yield* wayInto(network.namespace, network.address, 5620)
        const api: Service = { ...service, url, request: requestTo(url, service.key) }
        const nodes = yield* Effect.forEach(
          names,
          Effect.fnUntraced(function* (id, index) {
            const at = network.nodes[index]
            if (at === undefined) return yield* Effect.die("unreachable: a network for each name")
            const { key } = yield* nodeKey(service, id)
            const node = yield* startNode({
              control: `http://${network.address}:5620`,
              key,
              id,
              namespace: at.namespace,
              env: {
                MUSTER_NODE_HOST: at.address,
                MUSTER_NODE_PORT: String(DAEMON_PORT),
                MUSTER_NODE_ALLOCATIONS: `${at.address}:25565-25664`
              }
            })
            yield* nodeIs(api, id, true)
            return { ...node, at }
          }),
          { concurrency: "unbounded" }
        )
        const south = nodes[1]
        if (south === undefined) return yield* Effect.die("unreachable: three nodes")
        const is = (id: string, connected: boolean) => nodeIs(api, id, connected)

        const stream = yield* subscribe(api, "/api/events?cursor=0")
        const leaving = yield* Scope.make()
        const before = yield* Scope.provide(subscribe(api, "/api/events?cursor=0"), leaving)
        const ids = yield* Effect.forEach(
          Array.from({ length: SERVERS }),
          () => create(api, "kept", { start: true }),
          { concurrency: 16 }
        )
        yield* eventually(
          list(api),
          (listed) => listed.length === SERVERS && listed.every(({ status }) => status === "running"),
          "60 seconds"
        )
        const placed = yield* list(api)
        for (const id of names) {
          assert.strictEqual(placed.filter(({ node_id }) => node_id === id).length, SERVERS / 3, id)
        }
        const [killed, crashed, ended, stopped, ...others] = placed
          .filter(({ node_id }) => node_id === "south")
          .map(({ id }) => id)
        if (killed === undefined || crashed === undefined || ended === undefined || stopped === undefined) {
          return yield* Effect.die("unreachable: twenty servers")
        }

        // A request is under way when the link is cut: the daemon carries it out, and its response is lost.
        south.process.kill("SIGSTOP")
        const flight = yield* Effect.forkChild(
          Effect.timeout(power(api, killed, "kill"), "15 seconds"), // half of the timeout of every request
          { startImmediately: true }
        )
        yield* eventually(hasUnread(south.process.pid), (unread) => unread)
        yield* south.at.cut
        south.process.kill("SIGCONT")
        // Servers crash meanwhile.
        for (const id of [crashed, ended]) {
          const main = yield* mainProcess(south.dataDir, id)
          if (main !== undefined) process.kill(main.pid, id === crashed ? "SIGKILL" : "SIGTERM")
        }
        yield* eventually(
          Effect.all({ node: api.request("GET", "/api/nodes/south"), listed: list(api) }),
          ({ listed, node }) =>
            node.json.connected === false &&
            listed.every(({ node_id, status }) => status === (node_id === "south" ? "unknown" : "running"))
        )

        const answer = yield* Fiber.join(flight)
        // A kill whose outcome is unknown is recorded, as is each stop of a saved server while its node is away.
        assert.strictEqual(answer.status, 200, answer.text)

        // While disconnected, the node gets no servers, and no request waits for it.
        const seenBefore = before.events().length
        yield* Scope.close(leaving, Exit.void)
        const late = yield* Effect.forEach(Array.from({ length: 12 }), () => create(api, "kept"), {
          concurrency: 4
        })
        const isLate = new Set<string>(late)
        const homes = (yield* list(api)).filter(({ id }) => isLate.has(id)).map(({ node_id }) => node_id)
        assert.deepStrictEqual(new Set(homes), new Set(["north", "west"]))
        const named = yield* api.request("POST", "/api/servers", {
          body: { blueprint_id: "kept", node_id: "south" }
        })
        assert.strictEqual(named.status, 503)
        assert.strictEqual(named.json.detail, "node is not connected: south")
        for (const path of ["stats", "logs"]) {
          assert.strictEqual((yield* api.request("GET", `/api/servers/${others[0]}/${path}`)).status, 503)
        }
        assert.strictEqual((yield* power(api, stopped, "stop")).status, 200)
        assert.strictEqual((yield* power(api, stopped, "pause")).status, 503)

        yield* south.at.heal
        yield* is("south", true)
        const down = new Set<string>([killed, crashed, ended, stopped])
        yield* eventually(list(api), (listed) =>
          listed.every(
            ({ id, status }) => status === (down.has(id) || isLate.has(id) ? "offline" : "running")
          )
        )
        // The node is reachable again, over open and new connections.
        yield* expectStatus(api, 204, "POST", `/api/servers/${others[0]}/commands`, {
          body: { commands: ["hello"] }
        })
        yield* expectStatus(api, 200, "POST", `/api/servers/${killed}/power`, { body: { action: "start" } })
        yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept", node_id: "south", start: true }
        })
        yield* eventually(list(api), (listed) => {
          const of = statuses(listed)
          const running = listed.filter(({ status }) => status === "running").length
          return of.get(killed) === "running" && running === SERVERS - 2
        })

        // The records equal the snapshots of the daemons.
        const settled = yield* list(api)
        const tokens = yield* nodeTokens(service.dataDir)
        for (const node of nodes) {
          const door = yield* wayInto(network.namespace, node.at.address, DAEMON_PORT)
          const has = yield* requestTo(door, tokens.get(node.id) ?? "")("GET", "/api/servers")
          assert.strictEqual(has.status, 200, has.text)
          assert.deepStrictEqual(
            statuses(has.json),
            statuses(settled.filter(({ node_id }) => node_id === node.id)),
            node.id
          )
        }
        assert.deepStrictEqual(
          processProblems(
            settled,
            nodes.flatMap(({ dataDir }) => serverProcesses(dataDir))
          ),
          []
        )

        // Published events equal the changes, once and in order, for resumed and for uninterrupted subscribers.
        const { journal, newest, records: kept } = yield* readDatabase(service.dataDir)
        assert.deepStrictEqual(journalProblems(journal, kept), [])
        const published = journal.filter(({ change }) => isPublic(change))
        yield* eventually(
          Effect.sync(() => stream.events().at(-1)?.Cursor),
          (cursor) => cursor === published.at(-1)?.cursor
        )
        assert.deepStrictEqual(
          cursorsOf(stream.events()),
          published.map(({ cursor }) => cursor)
        )
        assert.isFalse(stream.ended())
        const first = before.events().slice(0, seenBefore)
        const resumed = yield* subscribe(api, `/api/events?cursor=${first.at(-1)?.Cursor}`)
        yield* eventually(
          Effect.sync(() => resumed.events().at(-1)?.Cursor ?? 0),
          (cursor) => cursor >= (published.at(-1)?.cursor ?? newest)
        )
        assert.deepStrictEqual([...first, ...resumed.events()], stream.events())
        const up = ["installing", "offline", "starting", "running"]
        assert.deepStrictEqual(stream.of(killed), [...up, "unknown", "offline", "starting", "running"])
        assert.deepStrictEqual(stream.of(crashed), [...up, "unknown", "crash signal: killed", "offline"])
        for (const id of others) assert.deepStrictEqual(stream.of(id), [...up, "unknown", "running"])
        for (const { id, node_id } of placed) {
          if (node_id !== "south") assert.deepStrictEqual(stream.of(id), up)
        }
        assert.strictEqual(ids.length, SERVERS)
      }).pipe(Effect.scoped),
    180_000
  )
})
