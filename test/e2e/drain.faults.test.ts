import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { readDatabase } from "../support/database.ts"
import { eventsAre, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems } from "../support/invariants.ts"
import { Control, drain, filesOn, moveOf, node, options, serverOf, serverResponse } from "../support/moves.ts"
import { mainProcess } from "../support/processes.ts"
import { becomes, commands, expectStatus, installed, logsHave, powered, running } from "../support/servers.ts"

layer(Control.layer, options)("move", (it) => {
  describe("drain with move", () => {
    it.effect("a running server continues on the target with its files, on new ports", () =>
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
        assert.strictEqual(yield* serverResponse("127.0.0.1", after.allocations.default.port), "a castle")
        assert.isAtLeast(after.allocations.default.port, 29_100)
        assert.strictEqual(readFileSync(filesOn(to, id, "world/region/big")).length, 20_000_000)
        yield* eventually(
          Effect.sync(() => existsSync(join(from.dataDir, "node", "servers", id))),
          (there) => !there
        )
        assert.strictEqual(yield* serverResponse("127.0.0.1", before.allocations.default.port), "")
        yield* eventsAre(stream, id, [
          ...["installing", "offline", "starting", "running"],
          ...["stopping", "offline", "installing", "offline", "starting", "running"]
        ])
        yield* eventsAre(stream, still, ["installing", "offline", "installing", "offline"])
        yield* logsHave(api, id, "world: a castle")
        const { journal, ports, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.isTrue(ports.every((row) => row.port >= 29_100))
        yield* powered(api, id, "stop")
        yield* becomes(api, id, "offline")
        yield* expectStatus(api, 200, "DELETE", "/api/nodes/from?force=true")
      })
    )

    it.effect("a server with a pending definition gets it on the target, and keeps its files", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const from = yield* node(api, "old", 29_300)
        const id = yield* running(api, "kept", { node_id: "old" })
        yield* commands(api, id, "a castle")
        yield* logsHave(api, id, "wrote a castle")
        const to = yield* node(api, "new", 29_310)
        const overrides = { version: "2.0", env: { MOTD: "two" }, limits: { memory_limit: 96 } }
        const patched = yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { overrides } })
        assert.deepStrictEqual(patched.json.pending, ["env.MOTD", "limits.memory_limit", "version"])
        yield* drain(api, from.id)
        yield* eventually(moveOf(api, from.id), (move) => move.left === 0)
        yield* becomes(api, id, "running")
        const after = (yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=definition`)).json
        assert.deepStrictEqual([after.node_id, after.pending], [to.id, []])
        assert.strictEqual(yield* serverResponse("127.0.0.1", after.allocations.default.port), "a castle")
        const { pid } = yield* Effect.fromNullishOr(yield* mainProcess(to.dataDir, id))
        const variables = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
        assert.includeMembers(variables, ["MOTD=two", "SERVER_MEMORY=96"])
        const { records } = yield* readDatabase(api.dataDir)
        const record = records.find((one) => one.id === id)
        const { next, spec } = JSON.parse(
          readFileSync(join(to.dataDir, "node", "servers", id, "server.json"), "utf8")
        )
        assert.strictEqual(spec.definition.version, "2.0")
        assert.deepStrictEqual(spec.definition, JSON.parse(JSON.stringify(record?.definition)))
        assert.deepStrictEqual([spec.defined_at, next], [record?.redefinition?.defined_at, undefined])
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
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
          const ends = (status: number, expected: string, ...args: ReadonlyArray<string>) =>
            Effect.map(run(...args), ({ code, stderr, stdout }) =>
              assert.deepStrictEqual(
                { code, stderr, stdout },
                { code: status, stderr: `${expected}\n`, stdout: "" }
              )
            )
          yield* ends(0, "No nodes. `muster node` runs one.", "list")
          const one = yield* node(api, "one", 29_800)
          const head = "ID   NAME  LOCATION  STATE"
          yield* printed(`${head}      SERVERS\none  one   local     connected  0`, "list")
          yield* printed("Node one is drained: it gets no new servers.", "drain", "one")
          yield* printed(`${head}               SERVERS\none  one   local     connected, drained  0`, "list")
          assert.isUndefined(yield* moveOf(api, "one"))
          yield* printed("Node one gets servers again.", "undrain", "one")
          const id = yield* installed(api, "kept")
          yield* ends(
            2,
            "node owns a server: one. Delete its servers first, or migrate them: `muster nodes drain one --move`.",
            "remove",
            "one",
            "--yes"
          )
          yield* ends(
            64,
            "--wait goes with --move: without it the node keeps its servers.",
            "drain",
            "one",
            "--wait"
          )
          yield* ends(3, "node not found: two. `muster nodes list` shows all nodes.", "drain", "two")
          yield* node(api, "two", 29_900)
          const moved = yield* run("drain", "one", "--move", "--wait")
          assert.strictEqual(moved.code, 0, moved.stderr)
          assert.match(moved.stdout, /^Node one is drained; 1 server to move\.\n/)
          assert.match(moved.stdout, /\nNo saved server is left on one\.\n$/)
          assert.strictEqual((yield* serverOf(api, id)).node_id, "two")
          yield* one.kill("SIGTERM")
          yield* eventually(
            run("remove", "one", "--yes"),
            ({ stderr, stdout }) => stdout === "Node one is removed.\n" || stderr.startsWith("node not found")
          )
          const wrong = yield* expectStatus(api, 422, "PATCH", "/api/nodes/two/drained", {
            body: { drained: false, move: true }
          })
          assert.match(wrong.json.detail, /^body field move/)
          const unreachable = yield* muster(["nodes", "list"], {
            MUSTER_URL: "http://127.0.0.1:9",
            MUSTER_API_KEY: "x"
          })
          assert.strictEqual(
            unreachable.stderr,
            "http://127.0.0.1:9 cannot be reached (bad port): set MUSTER_URL to where the service is\n"
          )
          const stranger = yield* muster(["nodes", "list"], { MUSTER_URL: api.url, MUSTER_API_KEY: "x" })
          assert.strictEqual(stranger.code, 4)
          assert.strictEqual(
            stranger.stderr,
            `${api.url} refuses the key of MUSTER_API_KEY: the API key is not valid; set it to a key of scope AppAdmin; \`muster keys create --name <name>\` beside the service makes one\n`
          )
        }),
      120_000
    )

    it.effect("a server that the target cannot install returns with everything and runs", () =>
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
        // The other node does not have this map.
        const away = yield* node(api, "away", 29_500)
        yield* drain(api, "home")
        const move = yield* eventually(moveOf(api, "home"), (now) => now.servers[0]?.state === "blocked")
        assert.match(move.servers[0].reason, /maps/)
        yield* becomes(api, id, "running")
        assert.deepStrictEqual(yield* serverOf(api, id), before)
        assert.strictEqual(yield* serverResponse("127.0.0.1", before.allocations.default.port), "a castle")
        yield* eventsAre(stream, id, [
          ...["installing", "offline", "starting", "running"],
          ...["stopping", "offline", "installing", "offline", "starting", "running"]
        ])
        yield* eventually(
          Effect.sync(() => existsSync(join(away.dataDir, "node", "servers", id))),
          (there) => !there
        )
        // A second drain migrates it once that is possible.
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
