/** Real daemons with real files: what the simulated nodes of the model cannot break (spec 3.19, 12). */
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { zstdDecompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import { idOfBase } from "../../src/daemon/backups/target.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { type Fault, restartable } from "../support/faults/index.ts"
import { freePort, nodeIs, startNode } from "../support/nodes.ts"
import { endLeftovers } from "../support/processes.ts"
import { seeded } from "../support/random.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { adminKey, type Service } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { makeKeeper } from "./keeper.ts"
import { makeRecorder } from "./Recorder.ts"
import { seconds, seed } from "./settings.ts"

/** Approximate time for start, settling and reading, in seconds. */
const AROUND = 45
const faultSeconds = Math.max(15, seconds - AROUND)
const KEEPERS_OF_NODE = 2
const PORTS = 24_300
/** Maximum pauses between faults and lengths of faults, in milliseconds. */
const MOST_PAUSE = 2_500
const MOST_FROZEN = 4_000

const nodes = ["r0", "r1"] as const

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** Two replicas, and a daemon at each. */
const makeScene = Effect.gen(function* () {
  const { env } = yield* definitions(files)
  const set = yield* replicaSet({ ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "4" })
  const data = yield* temporaryFolder
  const parts = yield* Effect.forEach(nodes, (id, index) =>
    Effect.gen(function* () {
      const MUSTER_PORT = String(yield* freePort)
      const service = yield* restartable(`the service ${index}`, set.start({ MUSTER_PORT }))
      const { key } = yield* set.key(id, "Node")
      const dataDir = join(data, id)
      yield* Effect.addFinalizer(() => endLeftovers(dataDir))
      const node = yield* restartable(
        `the daemon ${id}`,
        startNode({
          ...{ control: service.latest().url, key, id, dataDir },
          env: {
            MUSTER_NODE_HEARTBEAT: "1",
            MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${PORTS + 40 * index}-${PORTS + 40 * index + 39}`
          }
        })
      )
      yield* nodeIs(service.latest(), id, true)
      return { id, service, node, folder: join(dataDir, "node") }
    })
  )
  return parts
})

/** The bytes of an archive, unpacked. */
const contentsOf = (url: string, backup: string) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${adminKey}` }
    const response = await fetch(`${url}/api/backups/${backup}/archive`, { headers })
    const bytes = Buffer.from(await response.arrayBuffer())
    return response.status === 200
      ? zstdDecompressSync(bytes).toString("latin1")
      : `status ${response.status}`
  })

const namesIn = (...path: ReadonlyArray<string>) => {
  try {
    return readdirSync(join(...path))
  } catch {
    return []
  }
}

interface BackupSeen {
  readonly id: string
  readonly node_id: string
  readonly state: string
}

/** All pages of the list of backups. */
const backupsOf = Effect.fnUntraced(function* (api: Service) {
  const all: Array<BackupSeen> = []
  for (let after = ""; ; after = `&after=${all.at(-1)?.id}`) {
    const { json } = yield* expectStatus(api, 200, "GET", `/api/backups?limit=100${after}`)
    const page: ReadonlyArray<BackupSeen> = json
    if (page.length === 0) return all
    all.push(...page)
  }
})

/** The backups that a node stores, without their bases. */
const backupsIn = (folder: string) =>
  namesIn(folder, "backups").filter((name) => idOfBase(name) === undefined)

describe("spec 3.19, 12: no backup that cannot be restored, no server that is half there", () => {
  it.live(
    `random actions on files, and daemons and services that are killed and frozen (MUSTER_TEST_SEED=${seed} MUSTER_TEST_MODEL_SECONDS=${seconds})`,
    () =>
      Effect.gen(function* () {
        const recorder = yield* makeRecorder(seed)
        const parts = yield* makeScene
        const urls = parts.map(({ service }) => service.latest().url)
        const expected = new Map<string, string>()
        const keepers = yield* Effect.forEach(
          nodes.flatMap((node) =>
            Array.from({ length: KEEPERS_OF_NODE }, (_, n) => ({ node, name: `${node}-k${n}` }))
          ),
          ({ name, node }, index) =>
            makeKeeper({
              ...{ name, node, nodes, urls, expected },
              random: seeded(seed + 1 + index),
              note: recorder.line
            }),
          { concurrency: "unbounded" }
        )
        recorder.begin()
        let isOver = false
        const working = yield* Effect.forkChild(
          Effect.forEach(
            keepers,
            ({ act }) => Effect.whileLoop({ while: () => !isOver, body: () => act, step: () => {} }),
            { concurrency: "unbounded", discard: true }
          )
        )
        const random = seeded(seed)
        const targets: ReadonlyArray<Fault> = parts.flatMap(({ node, service }) => [
          ...[node.killed, node.killed, node.frozen],
          ...[service.killed, service.frozen]
        ])
        const end = performance.now() + faultSeconds * 1000
        while (performance.now() < end) {
          yield* Effect.sleep(random.below(MOST_PAUSE))
          const fault = targets[random.below(targets.length)]
          if (fault === undefined) continue
          recorder.line({ broken: fault.name })
          yield* fault.inject
          yield* Effect.sleep(random.below(fault.name.includes("frozen") ? MOST_FROZEN : MOST_PAUSE))
          yield* Effect.retry(fault.heal, { times: 5 })
          recorder.line({ whole: fault.name })
        }
        isOver = true
        yield* Fiber.join(working)

        const api = parts[0]?.service.latest() ?? assert.fail("no service")
        for (const { id, service } of parts) yield* nodeIs(service.latest(), id, true)
        for (const { check, idle } of keepers) yield* Effect.andThen(idle, check)
        const backups = yield* backupsOf(api)
        const done = backups.filter(({ state }) => state === "done")
        for (const [index, { id }] of done.entries()) {
          const text = yield* contentsOf(urls[index % urls.length] ?? "", id)
          const found = new Set(text.match(/text-r\d-k\d-\d+/g) ?? [text.slice(0, 100)])
          assert.deepStrictEqual([...found], [expected.get(id)], `backup ${id}`)
        }
        const servers: ReadonlyArray<{ readonly id: string; readonly node_id: string }> =
          (yield* expectStatus(api, 200, "GET", "/api/servers")).json
        assert.deepStrictEqual(servers.map(({ id }) => id).toSorted(), keepers.map(({ id }) => id).toSorted())
        for (const { folder, id: node } of parts) {
          const ofNode = servers.filter(({ node_id }) => node_id === node).map(({ id }) => id)
          const stored = done.filter(({ node_id }) => node_id === node).map(({ id }) => id)
          yield* eventually(
            () => [namesIn(folder, "servers").toSorted(), backupsIn(folder).toSorted()],
            (names) => JSON.stringify(names) === JSON.stringify([ofNode.toSorted(), stored.toSorted()])
          )
        }
        yield* Effect.logInfo(
          `${backups.length} backups, ${done.length} of them done (MUSTER_TEST_SEED=${seed})`
        )
      }).pipe(Effect.scoped),
    Duration.toMillis(Duration.seconds(seconds + 300))
  )
})
