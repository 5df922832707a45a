import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeBalancer, subscriber } from "../../support/balancer.ts"
import { muster } from "../../support/command.ts"
import { readDatabaseAt } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { during, type Fault, smallDisk, smallDiskNote, withSmallDisk } from "../../support/faults/index.ts"
import { journalProblems, portProblems } from "../../support/invariants.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { alone, connectedNode, freePort, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { freeAllocations } from "../../support/ports.ts"
import { type PostgresFailed, startPostgres } from "../../support/postgres.ts"
import { endLeftovers } from "../../support/processes.ts"
import { replicaSet } from "../../support/replicaSet.ts"
import { adminKey, type Service, startService } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { becomes, create, expectStatus, installed, power, powered, running } from "../../support/servers.ts"
import {
  assertAnswers,
  assertNothingLost,
  assertSameEvents,
  figures,
  refusedDeletions,
  startLoad
} from "./load.ts"

const zeros = (name: string, mib: number) => `head -c ${mib * 1024 * 1024} /dev/zero > ${name}`
const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "large.yml": softwareFile("large", {
      files: { "server.sh": consoleServer },
      install: { script: zeros("big", 64) }
    })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game"), "large.yml": blueprintFile("large", "large") }
}
const range = { address: "127.0.0.1", first: 31_000, last: 40_999 }

const installOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install`), ({ json }) => json)

/** Files of an installation on a node, without its log. */
const leftOf = (dataDir: string, id: string) => {
  const list = (...path: ReadonlyArray<string>) => {
    const folder = join(dataDir, "node", ...path)
    return existsSync(folder) ? readdirSync(folder) : []
  }
  return {
    server: list("servers", id).filter((name) => /^(files|tree)/.test(name)),
    base: list("base").filter((name) => name.startsWith(".aside")),
    mounts: mountsBelow(join(dataDir, "node", "servers", id))
  }
}
const nothing = { server: [], base: [], mounts: [] }

/** Fills the disk of the database of a control plane under load, until many writes are refused. */
const assertOutage = Effect.fnUntraced(function* (options: {
  readonly api: Service
  /** The key of the node. */
  readonly key: string
  readonly full: Fault
  readonly database: ReturnType<typeof readDatabaseAt>
  /** Runs once there is space again. */
  readonly restart: Effect.Effect<void, PostgresFailed>
}) {
  const { api, database, full, key, restart } = options
  yield* makeSimulatedNode({ id: "n1", key, control: [api.url], ports: `${range.first}-${range.last}` })
  yield* nodeIs(api, "n1", true)
  const streams = yield* Effect.forEach(["sse", "websocket"] as const, (kind) =>
    subscriber(kind, adminKey, Effect.succeed(api.url))
  )
  const balancer = yield* makeBalancer(adminKey, () => [api.url], { failOpen: true })
  const load = yield* startLoad(balancer, "kept")
  yield* load.creations(20)
  const refused = () => load.answers().filter(({ status }) => status === 507)
  const began = performance.now()
  yield* during(
    full,
    eventually(
      Effect.sync(() => refused().length),
      (count) => count >= 50,
      "60 seconds"
    )
  )
  yield* restart
  const healed = performance.now()
  yield* load.creations(1)
  const recovered = performance.now()
  yield* load.creations(20)
  const answers = yield* load.end

  assertAnswers(answers, {
    503: "the database cannot be reached",
    507: "the disk of the database is full"
  })
  const read = answers.filter((one) => one.what === "read" && one.began > began && one.began < healed)
  yield* Effect.logInfo(
    `${full.name} for ${Math.round(healed - began)} ms; writes refused: ${figures(refused())}; reads: ${figures(read)}; a creation ${Math.round(recovered - healed)} ms after there was room`
  )
  for (const id of refusedDeletions(answers)) {
    yield* eventually(api.request("DELETE", `/api/servers/${id}`), ({ status }) =>
      [200, 404].includes(status)
    )
  }
  const { integrity, journal, ports, records } = yield* eventually(database, (now) =>
    now.records.every(({ status }) => status === "offline")
  )
  assert.deepStrictEqual(integrity, [{ integrity_check: "ok" }])
  assert.deepStrictEqual(journalProblems(journal, records), [])
  const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")
  const listed: ReadonlyArray<string> = json.map(({ id }: { readonly id: string }) => id)
  assertNothingLost(answers, listed)
  assert.sameMembers(
    records.map(({ id }) => id),
    [...listed]
  )
  assert.deepStrictEqual(portProblems(json, ports, range), [])
  yield* assertSameEvents(journal, streams)
  for (const { endings } of streams) assert.deepStrictEqual(endings(), [])
})

describe.runIf(withSmallDisk)(`spec 9.6: database away, its disk is full${smallDiskNote}`, () => {
  it.live(
    "SQLite: reads work from memory, writes are 507 at once, streams stay open, and the service recovers",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const { full, path } = yield* smallDisk(64)
        const api = yield* startService({ dataDir: path, env: { ...alone, ...env } })
        const { key } = yield* nodeKey(api, "n1")
        yield* assertOutage({
          api,
          key,
          full,
          database: readDatabaseAt(`sqlite:${path}/muster.db`),
          restart: Effect.void
        })
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "PostgreSQL: the same, after a restart of PostgreSQL if it died",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const { full, path } = yield* smallDisk(160)
        yield* Effect.sync(() => mkdirSync(path))
        const server = yield* startPostgres({ parent: path, settings: { max_wal_size: "32MB" } })
        const set = yield* replicaSet(env, server)
        const api = yield* set.start()
        const { key } = yield* set.key("n1", "Node")
        yield* assertOutage({ api, key, full, database: readDatabaseAt(set.url), restart: server.start })
      }).pipe(Effect.scoped),
    90_000
  )
})

const FULL = "the disk of the database is full"
const noRoom = Effect.fnUntraced(function* (api: Service, method: string, path: string, body?: unknown) {
  const { json } = yield* expectStatus(api, 507, method, path, { body })
  assert.deepStrictEqual(Object.keys(json).toSorted(), ["code", "detail", "hint", "request_id", "status"])
  assert.strictEqual(json.status, "Insufficient Storage")
  assert.strictEqual(json.detail, FULL)
  assert.match(json.hint, /Free space/)
})
const readiness = (api: Service) =>
  Effect.map(api.request("GET", "/readyz"), ({ json, status }) => ({ json, status }))
const freeBytes = (api: Service) =>
  Effect.map(api.request("GET", "/metrics"), ({ text }) =>
    Number(/^muster_data_disk_free_bytes(?:\{[^}]*\})? (\S+)$/m.exec(text)?.[1])
  )
const reserved = (dataDir: string) => {
  const { blocks, size } = statSync(join(dataDir, "muster.reserve"))
  return { size, allocated: blocks * 512 }
}
const MIB = 1024 * 1024

const hasReserve = (dataDir: string, whole = true) =>
  eventually(
    Effect.sync(() => reserved(dataDir)),
    ({ allocated }) => (whole ? allocated >= 8 * MIB : allocated === 0)
  )
/** A service whose servers run on when it exits. */
const serviceOnSmallDisk = Effect.gen(function* () {
  const { env } = yield* definitions(files)
  const { full, path } = yield* smallDisk(64)
  yield* Effect.addFinalizer(() => endLeftovers(path))
  const allocations = yield* freeAllocations(10)
  const settings = { dataDir: path, env: { ...env, ...allocations, MUSTER_EMBEDDED_ON_SHUTDOWN: "keep" } }
  return { first: yield* startService(settings), full, path, settings }
})

describe.runIf(withSmallDisk)(`a full disk of the service${smallDiskNote}`, () => {
  it.live(
    "writes are 507, readyz gives the reason, the log has one line per second, deletions work, and the service recovers",
    () =>
      Effect.gen(function* () {
        const { first, full, path, settings } = yield* serviceOnSmallDisk
        const kept = yield* running(first, "kept")
        const doomed = yield* installed(first, "kept")
        yield* hasReserve(path)
        assert.isAbove(yield* freeBytes(first), 30 * MIB)
        // On a full disk, the reserves are released: here, they are more than the space below which the warning is due.
        const ballast = join(path, "ballast")
        const { bfree, bsize } = statfsSync(path)
        writeFileSync(ballast, Buffer.alloc(bfree * bsize - 2 * MIB))
        yield* eventually(() => /WARN.*the disk of the data folder is almost full/.test(first.output()))
        rmSync(ballast)

        const third = yield* during(
          full,
          Effect.gen(function* () {
            // Idle: no write has failed yet.
            const unready = yield* eventually(readiness(first), ({ status }) => status === 503)
            assert.strictEqual(unready.json.detail, FULL)
            yield* hasReserve(path, false)
            yield* noRoom(first, "POST", "/api/servers", { blueprint_id: "kept" })
            yield* noRoom(first, "POST", "/api/events/tickets")
            const began = performance.now()
            yield* Effect.forEach(
              Array.from({ length: 300 }),
              () => noRoom(first, "POST", "/api/servers", { blueprint_id: "kept" }),
              { concurrency: 10 }
            )
            const seconds = Math.ceil((performance.now() - began) / 1000) + 2
            const lines = first
              .output()
              .split("\n")
              .filter((line) => /writes are refused:| 507/.test(line))
            assert.isAtMost(lines.length, seconds, lines.join("\n"))
            yield* expectStatus(first, 200, "DELETE", `/api/servers/${doomed}`)
            yield* expectStatus(first, 200, "GET", `/api/servers/${kept}`)
            const { code, stderr } = yield* muster(["keys", "create", "--name", "x"], {
              MUSTER_DATA_DIR: path
            })
            assert.strictEqual(code, 1, stderr)
            assert.match(stderr, /disk|space|room/)
            yield* first.kill("SIGKILL")

            const second = yield* startService(settings)
            assert.strictEqual((yield* readiness(second)).status, 503)
            const { json } = yield* expectStatus(second, 200, "GET", "/api/servers?ids_only=true")
            assert.deepStrictEqual(json, [kept])
            yield* becomes(second, kept, "running")
            yield* noRoom(second, "POST", "/api/servers", { blueprint_id: "kept" })
            yield* second.kill("SIGTERM")

            // A regular exit removes the WAL and its index; the start creates them again in the space of the reserve.
            const last = yield* startService(settings)
            yield* noRoom(last, "POST", "/api/servers", { blueprint_id: "kept" })
            return last
          })
        )
        yield* eventually(readiness(third), ({ status }) => status === 200)
        assert.isAtLeast(reserved(path).allocated, 8 * MIB)
        assert.match(third.output(), /INFO.*the disk of the database has room again/)
        yield* running(third, "kept")
        yield* becomes(third, kept, "running")
        yield* powered(third, kept, "stop")
        yield* becomes(third, kept, "offline")
      }).pipe(Effect.scoped),
    60_000
  )
})

const systemOf = Effect.fnUntraced(function* (api: Service) {
  const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
  return (yield* expectStatus(api, 200, "GET", `/api/nodes/${node.id}/system`)).json.system
})

describe.runIf(withSmallDisk)(`the service starts on a full disk${smallDiskNote}`, () => {
  it.live(
    "with its reserve spent, the service serves reads; once there is space, its records match the nodes",
    () =>
      Effect.gen(function* () {
        const { first, full, path, settings } = yield* serviceOnSmallDisk
        const system = yield* systemOf(first)
        const [kept, ended] = [yield* running(first, "kept"), yield* running(first, "kept")]
        yield* hasReserve(path)
        /** The process of a server; 0 while it has none. */
        const processOf = (id: string) =>
          Effect.orElseSucceed(
            Effect.try(
              (): number => JSON.parse(readFileSync(join(path, "node/servers", id, "run.json"), "utf8")).pid
            ),
            () => 0
          )
        const [keptProcess, endedProcess] = [yield* processOf(kept), yield* processOf(ended)]
        const second = yield* during(
          full,
          Effect.gen(function* () {
            yield* hasReserve(path, false)
            yield* full.inject
            yield* first.kill("SIGKILL")
            yield* full.inject
            process.kill(-endedProcess, "SIGKILL")

            const second = yield* startService(settings)
            assert.strictEqual((yield* readiness(second)).status, 503)
            const { json } = yield* expectStatus(second, 200, "GET", "/api/servers?ids_only=true")
            assert.sameMembers(json, [kept, ended])
            yield* becomes(second, kept, "running")
            assert.deepStrictEqual((yield* systemOf(second)).isolation, system.isolation)
            yield* noRoom(second, "POST", "/api/servers", { blueprint_id: "kept" })
            return second
          })
        )
        yield* eventually(readiness(second), ({ status }) => status === 200)
        // It ended together with its supervisor, as at a restart of the machine: what ran runs again.
        yield* eventually(processOf(ended), (pid) => pid !== 0 && pid !== endedProcess)
        yield* becomes(second, ended, "running")
        yield* becomes(second, kept, "running")
        assert.strictEqual(yield* processOf(kept), keptProcess)
        yield* eventually(systemOf(second), (now) => now.instance_files === system.instance_files)
        assert.deepStrictEqual(yield* systemOf(second), system)
        yield* powered(second, ended, "stop")
        yield* becomes(second, ended, "offline")
        yield* running(second, "kept")
        yield* powered(second, kept, "stop")
        yield* becomes(second, kept, "offline")
      }).pipe(Effect.scoped),
    60_000
  )
})

describe.runIf(withSmallDisk)(`spec 9.6: disk full on a node${smallDiskNote}`, () => {
  it.live(
    "an installation that fills the disk fails with a reason; other servers run on",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const disk = yield* smallDisk(32)
        yield* Effect.addFinalizer(() => endLeftovers(disk.path))
        const api = yield* startService({ env: { ...alone, ...env } })
        yield* connectedNode(api, "n1", {
          dataDir: disk.path,
          env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28720-28739" }
        })
        const stream = yield* subscribe(api)
        const other = yield* running(api, "kept")
        const failed = yield* create(api, "large", { start: true })
        yield* becomes(api, failed, "offline")
        const install = yield* installOf(api, failed)
        assert.strictEqual(install.phase, "failed")
        assert.match(install.failure_reason, /disk full/)
        assert.deepStrictEqual(leftOf(disk.path, failed), nothing)
        yield* eventsAre(stream, failed, ["installing", "offline"])
        assert.deepStrictEqual(stream.of(other), ["installing", "offline", "starting", "running"])
        yield* expectStatus(api, 409, "POST", `/api/servers/${failed}/power`, { body: { action: "start" } })
        yield* running(api, "kept")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${failed}`)
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "a daemon that starts on a full disk keeps its servers and reports changes later",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const disk = yield* smallDisk(32)
        yield* Effect.addFinalizer(() => endLeftovers(disk.path))
        const api = yield* startService({ env: { ...alone, ...env } })
        const { key } = yield* nodeKey(api, "n1")
        const port = yield* freePort
        const settings = {
          id: "n1",
          key,
          control: api.url,
          dataDir: disk.path,
          env: {
            MUSTER_NODE_PORT: String(port),
            MUSTER_NODE_ON_SHUTDOWN: "keep",
            MUSTER_NODE_HEARTBEAT: "1",
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28760-28779"
          }
        }
        const first = yield* startNode(settings)
        yield* nodeIs(api, "n1", true)
        const stream = yield* subscribe(api)
        const [kept, ending] = [yield* running(api, "kept"), yield* running(api, "kept")]
        yield* during(
          disk.full,
          Effect.gen(function* () {
            yield* first.kill("SIGKILL")
            yield* startNode(settings)
            yield* nodeIs(api, "n1", true)
            yield* becomes(api, kept, "running")
            yield* power(api, ending, "stop")
          })
        )
        yield* becomes(api, ending, "offline")
        yield* eventsAre(stream, ending, [
          "installing",
          "offline",
          "starting",
          "running",
          "stopping",
          "offline"
        ])
        yield* becomes(api, kept, "running")
        yield* powered(api, kept, "stop")
        yield* becomes(api, kept, "offline")
      }).pipe(Effect.scoped),
    60_000
  )
})
