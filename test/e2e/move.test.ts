import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { muster } from "../support/command.ts"
import { readDatabase } from "../support/database.ts"
import { definitions } from "../support/definitions.ts"
import { subscribe, told } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems } from "../support/invariants.ts"
import { drain, files, filesOn, moveOf, node, says, serverOf } from "../support/moves.ts"
import { alone, connectedNode } from "../support/nodes.ts"
import { endLeftovers } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, commands, expectStatus, installed, logsHave, powered, running } from "../support/servers.ts"

/** A control plane without a node of its own, that thinks a node lost after 2 s. */
class Control extends Context.Service<Control, Service>()("test/Control") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      return yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "2" } })
    })
  )
}

const options = { excludeTestServices: true, timeout: "60 seconds" } as const

layer(Control.layer, options)("move", (it) => {
  describe("drain with move", () => {
    it.effect("a running server goes on elsewhere, with its files, on new ports", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const from = yield* node(api, "from", 29_000)
        const stream = yield* subscribe(api, "/api/events?cursor=0")
        const id = yield* running(api, "kept")
        yield* commands(api, id, "a castle")
        yield* logsHave(api, id, "wrote a castle")
        mkdirSync(filesOn(from, id, "world/region"))
        writeFileSync(filesOn(from, id, "world/region/big"), Buffer.alloc(20_000_000, 1))
        const still = yield* installed(api, "kept")
        const to = yield* node(api, "to", 29_100)
        const before = yield* serverOf(api, id)

        const answer = yield* drain(api, "from")
        assert.strictEqual(answer.json.move.left, 2)
        yield* eventually(moveOf(api, "from"), (move) => move.left === 0)
        yield* becomes(api, id, "running")
        const after = yield* serverOf(api, id)
        assert.deepInclude(after, { node_id: "to", node_name: "to" })
        assert.strictEqual(yield* says("127.0.0.1", after.allocations.default.port), "a castle")
        assert.isAtLeast(after.allocations.default.port, 29_100)
        assert.strictEqual(readFileSync(filesOn(to, id, "world/region/big")).length, 20_000_000)
        yield* eventually(
          Effect.sync(() => existsSync(join(from.dataDir, "node", "servers", id))),
          (there) => !there
        )
        assert.strictEqual(yield* says("127.0.0.1", before.allocations.default.port), "")
        yield* told(stream, id, [
          ...["installing", "offline", "starting", "running"],
          ...["stopping", "offline", "installing", "offline", "starting", "running"]
        ])
        yield* told(stream, still, ["installing", "offline", "installing", "offline"])
        yield* logsHave(api, id, "world: a castle")
        const { journal, ports, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.isTrue(ports.every((row) => row.port >= 29_100))
        yield* powered(api, id, "stop")
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", "/api/nodes/from")
      })
    )

    it.effect(
      "the command line: list, drain, undrain, remove",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const run = (...args: ReadonlyArray<string>) =>
            muster(["nodes", ...args], { MUSTER_URL: api.url, MUSTER_API_KEY: api.key })
          const printed = (expected: string, ...args: ReadonlyArray<string>) =>
            Effect.map(run(...args), ({ code, stderr, stdout }) =>
              assert.deepStrictEqual(
                { code, stderr, stdout },
                { code: 0, stderr: "", stdout: `${expected}\n` }
              )
            )
          const refused = (expected: string, ...args: ReadonlyArray<string>) =>
            Effect.map(run(...args), ({ code, stderr, stdout }) =>
              assert.deepStrictEqual(
                { code, stderr, stdout },
                { code: 1, stderr: `${expected}\n`, stdout: "" }
              )
            )
          yield* printed("No nodes. `muster node` runs one.", "list")
          const one = yield* node(api, "one", 29_800)
          const head = "ID   NAME  LOCATION  STATE"
          yield* printed(`${head}      SERVERS\none  one   local     connected  0`, "list")
          yield* printed("Node one is drained: it gets no new servers.", "drain", "one")
          yield* printed(`${head}               SERVERS\none  one   local     connected, drained  0`, "list")
          assert.isUndefined(yield* moveOf(api, "one"))
          yield* printed("Node one gets servers again.", "undrain", "one")
          const id = yield* installed(api, "kept")
          yield* refused(
            "node owns a server: one. Delete its servers first, or have them moved: `muster nodes drain --move`.",
            "remove",
            "one"
          )
          yield* refused(
            "--wait goes with --move: without it the node keeps its servers.",
            "drain",
            "one",
            "--wait"
          )
          yield* refused("node not found: two. `muster nodes list` shows what there is.", "drain", "two")
          yield* node(api, "two", 29_900)
          const moved = yield* run("drain", "one", "--move", "--wait")
          assert.strictEqual(moved.code, 0, moved.stderr)
          assert.match(moved.stdout, /^Node one is drained; 1 server to move\.\n/)
          assert.match(moved.stdout, /\nNo saved server is left on one\.\n$/)
          assert.strictEqual((yield* serverOf(api, id)).node_id, "two")
          yield* one.kill("SIGTERM")
          yield* eventually(
            run("remove", "one"),
            ({ stderr, stdout }) =>
              stdout === "Node one is forgotten.\n" || stderr.startsWith("node not found")
          )
          const wrong = yield* expectStatus(api, 422, "PATCH", "/api/nodes/two/drained", {
            body: { drained: false, move: true }
          })
          assert.match(wrong.json.detail, /^body field move/)
          const nobody = yield* muster(["nodes", "list"], {
            MUSTER_URL: "http://127.0.0.1:9",
            MUSTER_API_KEY: "x"
          })
          assert.strictEqual(
            nobody.stderr,
            "http://127.0.0.1:9 cannot be reached (bad port): set MUSTER_URL to where the service is\n"
          )
          const stranger = yield* muster(["nodes", "list"], { MUSTER_URL: api.url, MUSTER_API_KEY: "x" })
          assert.strictEqual(stranger.code, 1)
          assert.strictEqual(
            stranger.stderr,
            `${api.url} refuses the key of MUSTER_API_KEY: the API key is not valid; set it to a key of scope AppAdmin; \`muster keys create --name <name>\` beside the service makes one\n`
          )
        }),
      120_000
    )

    it.effect(
      "says why a server stays, lets the others go, and leaves those that are not saved to run out",
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
            /^Node mixed is drained; 4 servers to move. Not saved, left to run out: 1 server.\n/
          )
          const stays = [first, second, third].filter((id) => ended.stderr.includes(id))
          assert.strictEqual(stays.length, 2, ended.stderr)
          assert.include(
            ended.stderr,
            `${shared}: it has volumes that are written by others too (rw): common`
          )
          assert.match(ended.stderr, /no nodes available: 2 nodes: 1 drained, 1 without a free port/)
          assert.match(ended.stderr, /3 servers cannot leave mixed.\n$/)
          const [gone] = [first, second, third].filter((id) => !ended.stderr.includes(id))
          assert.strictEqual((yield* serverOf(api, gone ?? "")).node_id, "other")
          assert.strictEqual((yield* serverOf(api, passing)).node_id, "mixed")
          assert.isTrue(existsSync(filesOn(from, shared, "keeper.js")))
          // What is named onto such a node stays there.
          const named = yield* installed(api, "kept", { node_id: "mixed" })
          assert.strictEqual((yield* moveOf(api, "mixed")).left, 3)
          assert.strictEqual((yield* serverOf(api, named)).node_id, "mixed")
          // Room, and the others go too.
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

    it.effect("a server that cannot be made there comes back, with everything, and runs on", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const from = yield* node(api, "home", 29_400)
        const stream = yield* subscribe(api)
        mkdirSync(join(from.dataDir, "node", "maps"), { recursive: true })
        writeFileSync(join(from.dataDir, "node", "maps", "map"), "a map")
        const id = yield* running(api, "mapped")
        yield* commands(api, id, "a castle")
        yield* logsHave(api, id, "wrote a castle")
        const before = yield* serverOf(api, id)
        // There is no such map on the other node.
        const away = yield* node(api, "away", 29_500)
        yield* drain(api, "home")
        const move = yield* eventually(moveOf(api, "home"), (now) => now.servers[0]?.state === "blocked")
        assert.match(move.servers[0].reason, /maps/)
        yield* becomes(api, id, "running")
        assert.deepStrictEqual(yield* serverOf(api, id), before)
        assert.strictEqual(yield* says("127.0.0.1", before.allocations.default.port), "a castle")
        yield* told(stream, id, [
          ...["installing", "offline", "starting", "running"],
          ...["stopping", "offline", "installing", "offline", "starting", "running"]
        ])
        yield* eventually(
          Effect.sync(() => existsSync(join(away.dataDir, "node", "servers", id))),
          (there) => !there
        )
        // Asked anew, it goes when it can.
        mkdirSync(join(away.dataDir, "node", "maps"), { recursive: true })
        writeFileSync(join(away.dataDir, "node", "maps", "map"), "a map")
        yield* drain(api, "home")
        yield* eventually(moveOf(api, "home"), (now) => now.left === 0)
        yield* becomes(api, id, "running")
        yield* logsHave(api, id, "world: a castle")
      })
    )
  })
})

describe("drain with move, of the node in the service", () => {
  it.live(
    "its servers go to a node on another machine, and back",
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
          assert.strictEqual(yield* says("127.0.0.1", port), "a castle")
          assert.strictEqual((yield* run("undrain", from)).code, 0)
        }
      }).pipe(Effect.scoped),
    120_000
  )
})
