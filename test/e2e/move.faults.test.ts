import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { readDatabase } from "../support/database.ts"
import { definitions } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { makeRestartingService, restartable } from "../support/faults/index.ts"
import { journalProblems } from "../support/invariants.ts"
import {
  Control,
  drain,
  files,
  filesOn,
  moveOf,
  node,
  options,
  serverOf,
  serverResponse
} from "../support/moves.ts"
import { alone, connectedNode, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { endLeftovers, serverProcesses } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import {
  becomes,
  commands,
  expectStatus,
  installed,
  logsHave,
  running,
  statusOf
} from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

describe("drain with move, of the embedded node", () => {
  it.live(
    "servers migrate to a node on another machine, and back",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({
          env: {
            ...env,
            MUSTER_OVERCOMMIT_MEMORY: "1000",
            MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:30100-30109",
            MUSTER_NODE_NAME: "local"
          }
        })
        yield* Effect.addFinalizer(() => endLeftovers(api.dataDir))
        const id = yield* running(api, "kept")
        yield* commands(api, id, "a castle")
        yield* logsHave(api, id, "wrote a castle")
        yield* connectedNode(api, "remote", { env: { MUSTER_NODE_ALLOCATIONS: "127.0.0.1:30110-30119" } })
        const run = (...args: ReadonlyArray<string>) =>
          muster(["nodes", ...args], { MUSTER_URL: api.url, MUSTER_API_KEY: api.key })
        for (const [from, first] of [
          ["local", 30_110],
          ["remote", 30_100]
        ] as const) {
          const ended = yield* run("drain", from, "--move", "--wait")
          assert.strictEqual(ended.code, 0, ended.stderr)
          yield* becomes(api, id, "running")
          const { port } = (yield* serverOf(api, id)).allocations.default
          assert.isTrue(port >= first && port < first + 10)
          assert.strictEqual(yield* serverResponse("127.0.0.1", port), "a castle")
          assert.strictEqual((yield* run("undrain", from)).code, 0)
        }
      }).pipe(Effect.scoped),
    120_000
  )
})
layer(Control.layer, options)("drain with move: servers that stay", (it) => {
  it.effect(
    "the reason why a server stays is shown, the others migrate, and servers that are not saved keep running",
    () =>
      Effect.gen(function* () {
        const api = yield* Control
        const from = yield* node(api, "mixed", 29_200)
        const shared = yield* installed(api, "shared")
        const passing = yield* running(api, "passing")
        const first = yield* installed(api, "kept")
        yield* node(api, "other", 29_300, { MUSTER_NODE_ALLOCATIONS: "127.0.0.1:29300" })
        const second = yield* installed(api, "kept", { node_id: "mixed" })
        const third = yield* installed(api, "kept", { node_id: "mixed" })
        const ended = yield* muster(["nodes", "drain", "mixed", "--move", "--wait"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: api.key
        })
        assert.strictEqual(ended.code, 1, ended.stderr)
        assert.match(
          ended.stdout,
          /^Node mixed is drained; 4 servers to move. Not moved, because not saved: 1 server.\n/
        )
        const stays = [first, second, third].filter((id) => ended.stderr.includes(id))
        assert.strictEqual(stays.length, 2, ended.stderr)
        assert.include(ended.stderr, `${shared}: it has volumes that are written by others too (rw): common`)
        assert.match(ended.stderr, /no nodes available: 1 node: 1 without a free port/)
        assert.match(ended.stderr, /3 servers cannot leave mixed.\n$/)
        const [gone] = [first, second, third].filter((id) => !ended.stderr.includes(id))
        assert.strictEqual((yield* serverOf(api, gone ?? "")).node_id, "other")
        assert.strictEqual((yield* serverOf(api, passing)).node_id, "mixed")
        assert.isTrue(existsSync(filesOn(from, shared, "keeper.js")))
        // A server placed by name on such a node stays there.
        const named = yield* installed(api, "kept", { node_id: "mixed" })
        assert.strictEqual((yield* moveOf(api, "mixed")).left, 3)
        assert.strictEqual((yield* serverOf(api, named)).node_id, "mixed")
        // This makes room, and the others migrate.
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${gone}`)
        yield* eventually(moveOf(api, "mixed"), (move) => move.left === 2)
        const back = yield* muster(["nodes", "undrain", "mixed"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: api.key
        })
        assert.strictEqual(back.stdout, "Node mixed gets servers again.\n", back.stderr)
        assert.isUndefined(yield* moveOf(api, "mixed"))
      })
  )
})

/** The pause of polls for states that pass soon, in milliseconds. */
const SOON = 10

/** A node that is killed and restarts on the same data folder. */
const restartingNode = Effect.fnUntraced(function* (id: string, control: string, key: string, port: number) {
  const dataDir = join(yield* temporaryFolder, id)
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const env = { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${port}-${port + 9}` }
  const { killed } = yield* restartable(id, startNode({ control, key, id, dataDir, env }))
  return { id, dataDir, killAndRestart: Effect.andThen(killed.inject, killed.heal) }
})

const fetching = (node: { readonly dataDir: string }, id: string) =>
  Effect.sync(() => {
    try {
      return readdirSync(filesOn(node, id, "")).some((name) => name.startsWith(".muster-arriving-"))
    } catch {
      return false // not there yet
    }
  })

describe("drain with move, through kill -9", () => {
  it.live(
    "kill -9 of the control plane, of the source and of the target: one copy, nothing lost",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(files)
        const dataDir = join(yield* temporaryFolder, "data")
        const port = yield* freePort
        const control = `http://127.0.0.1:${port}`
        const restarting = yield* makeRestartingService({
          dataDir,
          env: { ...folders.env, ...alone, MUSTER_PORT: String(port), MUSTER_NODE_HEARTBEAT_TIMEOUT: "8" }
        })
        const key = (id: string) => Effect.map(nodeKey({ dataDir }, id), (made) => made.key)
        const nodes = [
          yield* restartingNode("east", control, yield* key("east"), 29_600),
          yield* restartingNode("west", control, yield* key("west"), 29_700)
        ] as const
        const api = yield* restarting.current
        for (const { id } of nodes) yield* nodeIs(api, id, true)
        let [from, to] = nodes
        const id = yield* running(api, "lazy", { node_id: from.id })
        // The server creates `world` itself, so that it owns the folder.
        yield* commands(api, id, "a world")
        yield* logsHave(api, id, "wrote a world")
        mkdirSync(filesOn(from, id, "world/region"))
        writeFileSync(filesOn(from, id, "world/region/big"), Buffer.alloc(40_000_000, 7))

        const stopping = Effect.asVoid(
          eventually(statusOf(api, id), (now) => now === "stopping", "90 seconds", SOON)
        )
        const arriving = Effect.suspend(() =>
          Effect.asVoid(eventually(fetching(to, id), Boolean, "90 seconds", SOON))
        )
        const rounds = [
          { when: stopping, kill: () => restarting.killAndRestart() },
          { when: stopping, kill: () => from.killAndRestart },
          { when: arriving, kill: () => restarting.killAndRestart() },
          { when: arriving, kill: () => from.killAndRestart },
          { when: arriving, kill: () => to.killAndRestart },
          {
            when: arriving,
            kill: () =>
              Effect.all([from.killAndRestart, to.killAndRestart, restarting.killAndRestart()], {
                concurrency: "unbounded"
              })
          }
        ]
        for (const [round, { kill, when }] of rounds.entries()) {
          yield* commands(api, id, `round ${round}`)
          yield* logsHave(api, id, `wrote round ${round}`)
          const line = `round ${round}`
          yield* drain(api, from.id, { drained: true, move: true, notify: line, notify_seconds: 1 })
          yield* when
          yield* kill()
          yield* eventually(
            moveOf(api, from.id).pipe(Effect.orElseSucceed(() => undefined)),
            (move) => move?.left === 0
          )
          yield* becomes(api, id, "running")
          const server = yield* serverOf(api, id)
          assert.strictEqual(server.node_id, to.id)
          assert.strictEqual(
            yield* serverResponse("127.0.0.1", server.allocations.default.port),
            `round ${round}`
          )
          yield* eventually(
            Effect.sync(() => existsSync(join(from.dataDir, "node", "servers", id))),
            (there) => !there
          )
          assert.strictEqual(readFileSync(filesOn(to, id, "world/region/big")).length, 40_000_000)
          yield* drain(api, from.id, { drained: false })
          ;[from, to] = [to, from]
        }
        const { journal, ports, records } = yield* readDatabase(dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.strictEqual(ports.length, 1)
        const mine = nodes.map(
          (node) => serverProcesses(node.dataDir).filter((one) => one.server === id).length
        )
        assert.strictEqual(mine.filter((count) => count > 0).length, 1)
      }).pipe(Effect.scoped),
    240_000
  )
})
