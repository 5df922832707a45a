import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Option, Scope } from "effect"
import { chaosDefinitions, makeChaos, type Promised } from "../../support/chaos.ts"
import { readDatabase } from "../../support/database.ts"
import { definitions } from "../../support/definitions.ts"
import { replay } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { makeRestartingService, type RestartingService } from "../../support/faults/index.ts"
import {
  journalProblems,
  type ListedServer,
  portProblems,
  processProblems
} from "../../support/invariants.ts"
import { alone, connectedNode, freePort, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { endLeftovers, mainProcess, serverProcesses } from "../../support/processes.ts"
import { freshSeed, seeded } from "../../support/random.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, expectStatus, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const address = "127.0.0.1"
const ranges = [
  { id: "north", first: 28_000, last: 28_199 },
  { id: "south", first: 28_200, last: 28_399 }
] as const

/** A node that is killed repeatedly and restarts on the same data folder. */
const makeNode = Effect.fnUntraced(function* (range: (typeof ranges)[number], control: string, key: string) {
  const scope = yield* Effect.scope
  const dataDir = join(yield* temporaryFolder, range.id)
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const startOnce = Effect.gen(function* () {
    const nodeScope = yield* Scope.fork(scope)
    const node = yield* Scope.provide(
      startNode({
        control,
        key,
        id: range.id,
        dataDir,
        env: {
          MUSTER_NODE_HEARTBEAT: "1",
          MUSTER_NODE_ALLOCATIONS: `${address}:${range.first}-${range.last}`
        }
      }),
      nodeScope
    )
    return { nodeScope, node }
  })
  let now = yield* startOnce
  return {
    dataDir,
    current: () => now.node,
    killAndRestart: Effect.gen(function* () {
      yield* now.node.kill("SIGKILL")
      yield* Scope.close(now.nodeScope, Exit.void)
      now = yield* startOnce
    })
  }
})

/**
 * A request that fails with 503 because its node is away or not yet registered may have been carried out, like a
 * request whose response was lost.
 */
const treat503AsLost = (restarting: RestartingService): RestartingService => ({
  ...restarting,
  send: (...request) =>
    Effect.flatMap(restarting.send(...request), (answer) =>
      Option.isSome(answer) && answer.value.status === 503
        ? Effect.as(Effect.sleep("50 millis"), Option.none())
        : Effect.succeed(answer)
    )
})

const list = (api: Service): Effect.Effect<ReadonlyArray<ListedServer>> =>
  Effect.orDie(
    Effect.map(
      expectStatus(api, 200, "GET", "/api/servers?include=status,limits"),
      (answer): ReadonlyArray<ListedServer> => answer.json
    )
  )

/** Servers that have not reached the state of their last response yet. */
const unsettled = (listed: ReadonlyArray<ListedServer>, promised: ReadonlyArray<Promised>) => {
  const status = new Map(listed.map((server) => [server.id, server.status]))
  return promised
    .filter(({ expected, id, save }) => {
      const now = status.get(id)
      if (expected === "up") return now !== "running"
      if (expected === "down") return now !== "offline" && (save || now !== undefined)
      if (expected === "gone") return now !== undefined
      return now !== undefined && now !== "running" && now !== "offline"
    })
    .map(
      ({ expected, history, id }) =>
        `${id} is ${status.get(id) ?? "gone"}, expected ${expected}: ${history.join(", ")}`
    )
}

const seed = freshSeed()

describe("spec 9.6: control plane and daemon killed at any moment", () => {
  it.live(
    `no status change of 80 servers on two nodes is lost through kill -9 of the control plane and the daemons (MUSTER_TEST_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(chaosDefinitions)
        const dataDir = join(yield* temporaryFolder, "data")
        const port = yield* freePort
        const restarting = yield* makeRestartingService({
          dataDir,
          env: { ...folders.env, ...alone, MUSTER_PORT: String(port) }
        })
        const control = `http://${address}:${port}`
        const nodes = yield* Effect.forEach(ranges, (range) =>
          Effect.flatMap(nodeKey({ dataDir }, range.id), ({ key }) => makeNode(range, control, key))
        )
        const first = yield* restarting.current
        for (const { id } of ranges) yield* nodeIs(first, id, true)

        const random = seeded(seed)
        const total = 80
        const chaos = makeChaos(treat503AsLost(restarting), total)
        const killer = Effect.gen(function* () {
          for (const threshold of [8, 18, 28, 38, 48, 58, 68]) {
            const enough = threshold + random.below(6)
            yield* eventually(
              Effect.sync(() => chaos.promised.length),
              (count) => count >= enough,
              "60 seconds"
            )
            const victim = random.below(3)
            const node = nodes[victim]
            if (node === undefined) yield* restarting.killAndRestart()
            else if (random.below(3) === 0) {
              yield* Effect.all([node.killAndRestart, restarting.killAndRestart()], { concurrency: 2 })
            } else yield* node.killAndRestart
          }
        })
        const clients = Effect.forEach(
          [0, 1, 2, 3, 4, 5],
          (index) => chaos.client(`client-${seed}-${index}`, seeded(seed + 1 + index)),
          { concurrency: "unbounded", discard: true }
        )
        yield* Effect.all([clients, killer], { concurrency: "unbounded", discard: true })

        const api = yield* restarting.current
        for (const { id } of ranges) yield* nodeIs(api, id, true)
        assert.deepStrictEqual(chaos.surprises, [])
        yield* eventually(
          Effect.map(list(api), (listed) => unsettled(listed, chaos.promised)),
          (left) => left.length === 0
        )
        const processes = () => nodes.flatMap((node) => serverProcesses(node.dataDir))
        yield* eventually(
          Effect.map(list(api), (listed) => processProblems(listed, processes())),
          (problems) => problems.length === 0
        )
        const listed = yield* list(api)
        const { journal, ports, records } = yield* readDatabase(dataDir)
        assert.strictEqual(chaos.promised.length, total)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.deepStrictEqual(
          portProblems(listed, ports, { address, first: ranges[0].first, last: ranges[1].last }),
          []
        )
        const created = journal.filter(({ change }) => change.topic === "server:created")
        assert.strictEqual(created.length, total, "servers without an acknowledgement")
        const used = new Set(records.map((record) => record.node_id))
        assert.isTrue([...used].every((id) => ranges.some((range) => range.id === id)))

        for (const node of nodes) yield* node.current().kill("SIGTERM")
        assert.deepStrictEqual(processes(), [])
      }).pipe(Effect.scoped),
    240_000
  )

  it.live(
    "reports that wait while the control plane is killed arrive after its restart, in order and once",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(chaosDefinitions)
        const dataDir = join(yield* temporaryFolder, "data")
        const options = { dataDir, env: { ...alone, ...env, MUSTER_PORT: String(yield* freePort) } }
        const first = yield* startService(options)
        const node = yield* connectedNode(first, "waiting", {
          env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28610-28629" }
        })
        const ids = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () => running(first, "kept"), {
          concurrency: 6
        })
        yield* first.kill("SIGKILL")
        const [one, ...rest] = ids
        for (const id of rest) {
          const main = yield* mainProcess(node.dataDir, id)
          if (main !== undefined) process.kill(main.pid, "SIGKILL")
        }
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(node.dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1
        )
        const api = yield* startService(options)
        for (const id of rest) yield* becomes(api, id, "offline")
        yield* becomes(api, one ?? "", "running")
        const { journal, newestEvent, records } = yield* readDatabase(dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        const events = yield* replay(api, newestEvent)
        for (const id of rest) {
          const topics = events.filter((event) => event.Data.server_id === id).map(({ Topic }) => Topic)
          assert.deepStrictEqual(topics.slice(-2), ["crash", "status"], id)
          assert.strictEqual(topics.filter((topic) => topic === "crash").length, 1, id)
        }
        const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
        assert.deepStrictEqual(processProblems(listed, serverProcesses(node.dataDir)), [])
      }).pipe(Effect.scoped),
    60_000
  )
})
