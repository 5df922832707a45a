/**
 * Creation and deletion of servers on the embedded node beside saved servers: CPU time of the service's process alone,
 * without its children, memory, and the latency of reads at a fixed rate meanwhile. The baseline is the same process
 * without that work.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { parseStat, TICKS_PER_SECOND } from "../../src/daemon/host/procfs.ts"
import { memoryOf, probed } from "../support/footprint.ts"
import { type Service, startService } from "../support/Service.ts"
import { BenchFailed, poll, print } from "./harness.ts"
import { type LoadOptions, load } from "./load.ts"
import { steadyDuring } from "./steady.ts"

const SAVED = 200
const CHURNED = 200
const CONNECTIONS = 8
/** A read every so many ms, and the connections for reads. */
const READS = { every: 5, connections: 32 }

const body = JSON.stringify({ blueprint_id: "demo", overrides: { save: true } })

/** Returns the CPU time of a process in ms, without its children. */
const cpuMillis = (pid: number) =>
  Effect.try({
    try: () => {
      const fields = readFileSync(`/proc/${pid}/stat`, "latin1")
      const proc = parseStat(fields)
      const own = fields.slice(fields.lastIndexOf(")") + 2).split(" ")
      const ticks = proc === undefined ? Number.NaN : Number(own[14 - 3]) + Number(own[15 - 3])
      return (ticks * 1000) / TICKS_PER_SECOND
    },
    catch: (cause) => new BenchFailed({ message: `CPU time of ${pid}: ${cause}` })
  })

const serverIds = Effect.fnUntraced(function* (service: Service) {
  const { json } = yield* service.request("GET", "/api/servers?ids_only=true")
  const ids: ReadonlyArray<string> = json
  return ids
})

const allInstalled = (service: Service) =>
  poll(
    "all servers are installed",
    Effect.map(service.request("GET", "/api/servers?ids_only=true&status=installing"), ({ text }) =>
      text === "[]" ? true : undefined
    ),
    { every: 100, seconds: 120 }
  )

/** Returns the CPU time of the service for each of `count` units of work, in ms. */
const cpuOf = Effect.fnUntraced(function* <E, R>(
  service: Service,
  count: number,
  work: Effect.Effect<unknown, E, R>
) {
  const pid = service.process.pid ?? 0
  const before = yield* cpuMillis(pid)
  yield* work
  return ((yield* cpuMillis(pid)) - before) / count
})

export const churn = Effect.gen(function* () {
  const service = yield* startService({
    env: {
      ...probed,
      MUSTER_OVERCOMMIT_MEMORY: "1000",
      MUSTER_OVERCOMMIT_DISK: "1000",
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-29999",
      MUSTER_EMBEDDED_RUNTIME: "process"
    }
  })
  const send = (requests: number, options: Pick<LoadOptions, "request" | "status">) =>
    load({ url: service.url, key: service.key, connections: CONNECTIONS, requests, ...options })
  const create = (count: number) =>
    Effect.andThen(
      send(count, { status: 202, request: () => ({ method: "POST", path: "/api/servers", body }) }),
      allInstalled(service)
    )
  yield* poll(
    "the embedded node registers",
    Effect.map(service.request("GET", "/api/nodes?ids_only=true"), ({ text }) =>
      text === "[]" ? undefined : text
    )
  )
  yield* create(SAVED)
  const kept = new Set(yield* serverIds(service))

  const created = create(CHURNED)
  /** Deletes all servers but those of the start. */
  const deleted = Effect.gen(function* () {
    const ids = (yield* serverIds(service)).filter((id) => !kept.has(id))
    if (ids.length !== CHURNED)
      return yield* new BenchFailed({ message: `${ids.length} servers were created` })
    yield* send(CHURNED, {
      status: 200,
      request: (n) => ({ method: "DELETE", path: `/api/servers/${ids[n]}?force=true` })
    })
    yield* poll(
      "the folders are gone",
      Effect.sync(() =>
        readdirSync(join(service.dataDir, "node", "servers")).length === SAVED ? true : undefined
      ),
      { seconds: 120 }
    )
  })
  const reads = Effect.sleep("3 seconds")
  const idleCpu = yield* cpuOf(service, CHURNED, reads)
  const fewer = yield* memoryOf(service)
  const createCpu = yield* cpuOf(service, CHURNED, created)
  const more = yield* memoryOf(service)
  for (const [what, kind] of [
    ["in use after a garbage collection", "used"],
    ["resident", "resident"]
  ] as const) {
    yield* print({
      bench: "churn",
      figure: `memory of an installed server, ${what}`,
      value: (more[kind] - fewer[kind]) / CHURNED / 1024,
      unit: "KiB",
      baseline: `the service with ${SAVED} servers, in all`,
      baseline_value: fewer[kind] / 1024
    })
  }
  const deleteCpu = yield* cpuOf(service, CHURNED, deleted)
  const latenciesDuring = <E, R>(work: Effect.Effect<unknown, E, R>) =>
    steadyDuring({ url: service.url, key: service.key, path: "/api/system", ...READS }, work)
  const [idle, creating, deleting] = [
    yield* latenciesDuring(reads),
    yield* latenciesDuring(created),
    yield* latenciesDuring(deleted)
  ]
  const [warmCreateCpu, warmDeleteCpu] = [
    yield* cpuOf(service, CHURNED, created),
    yield* cpuOf(service, CHURNED, deleted)
  ]
  for (const [what, cpu, warmCpu, latencies] of [
    ["creation until installed", createCpu, warmCreateCpu, creating],
    ["DELETE with force until the folder is gone", deleteCpu, warmDeleteCpu, deleting]
  ] as const) {
    for (const [when, value] of [
      ["", cpu],
      [`, after ${SAVED + 2 * CHURNED} creations`, warmCpu]
    ] as const) {
      yield* print({
        bench: "churn",
        figure: `${what}, CPU time of the service alone${when}`,
        value,
        unit: "ms",
        baseline: `3 s without requests, divided by ${CHURNED}`,
        baseline_value: idleCpu
      })
    }
    for (const name of ["p50", "p99", "longest"] as const) {
      yield* print({
        bench: "churn",
        figure: `${what}, ${name} of GET /api/system meanwhile, one every ${READS.every} ms`,
        value: latencies[name],
        unit: "ms",
        baseline: "the same without creations and deletions",
        baseline_value: idle[name]
      })
    }
  }
}).pipe(Effect.scoped)
