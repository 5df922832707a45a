/**
 * The cost of a unit of work as the number of servers or subscribers grows; `placement` has the rows for nodes. The
 * baseline of a row is the smallest number, or a plain server with as many subscribers. Memory in use is that of objects and buffers after a garbage collection,
 * resident memory that of the process at the same time.
 */
import { join } from "node:path"
import { Effect } from "effect"
import type { ServerRecord } from "../../src/contract/domain/Server.ts"
import { memoryOf, probed } from "../support/footprint.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { cpuMicros, print, residentMiB, startServer } from "./harness.ts"
import { load } from "./load.ts"
import { seedServers } from "./seed.ts"
import { openStreams } from "./subscribers.ts"

const SERVERS = [100, 1_000, 10_000, 100_000]
const SUBSCRIBERS = [10, 100, 1_000, 10_000]
const MILLIS = 2_000
const MIB = 1024 * 1024
/** The fewest reads before a measurement. */
const WARM_READS = 20_000
/** Deliveries in a second to all subscribers together; more would measure the clients. */
const DELIVERED = 50_000
/** Events in a second. */
const MOST_EVENTS = 2_000

const numbers = new Intl.NumberFormat("en")

interface Cost {
  readonly figure: string
  readonly unit: string
  readonly value: number
}

const printAll = (what: string, measured: ReadonlyArray<readonly [number, ReadonlyArray<Cost>]>) =>
  Effect.forEach(measured, ([count, costs]) =>
    Effect.forEach(costs, ({ figure, unit, value }, at) =>
      print({
        bench: "scaling",
        figure: `${figure}, ${numbers.format(count)} ${what}`,
        value,
        unit,
        baseline: `${numbers.format(measured[0]?.[0] ?? 0)} ${what}`,
        baseline_value: measured[0]?.[1][at]?.value ?? Number.NaN
      })
    )
  )

/** Returns the fields that an installed server has of its own. */
const installed = (n: number): Partial<ServerRecord> => {
  const at = (seconds: number) => new Date(Date.UTC(2026, 0) + (n + seconds) * 1000).toISOString()
  const steps = (["place", "commit", "script", "instance"] as const).map((name, step) => ({
    name,
    started_at: at(step),
    finished_at: at(step + 1)
  }))
  return {
    name: `server ${n}`,
    install: { phase: "ready", exit_code: 0, started_at: at(2), finished_at: at(4), steps },
    created_at: at(0),
    updated_at: at(5)
  }
}

const ofServers = Effect.fnUntraced(function* (count: number) {
  const dataDir = join(yield* temporaryFolder, "data")
  const ids = yield* seedServers(dataDir, count, { known: true, own: installed })
  const began = performance.now()
  const service = yield* startService({ dataDir, env: { MUSTER_EMBEDDED_NODE: "false", ...probed } })
  const started = performance.now() - began
  const pid = service.process.pid ?? 0
  const send = (
    path: (n: number) => string,
    until: { readonly requests: number } | { readonly millis: number }
  ) =>
    load({
      url: service.url,
      key: service.key,
      connections: 32,
      status: 200,
      request: (n) => ({ method: "GET", path: path(n) }),
      ...until
    })
  const cpuOf = Effect.fnUntraced(function* (path: (n: number) => string) {
    const before = yield* cpuMicros(pid)
    const { requests } = yield* send(path, { millis: MILLIS })
    return ((yield* cpuMicros(pid)) - before) / requests
  })
  const [one, some] = [
    (n: number) => `/api/servers/${ids[(n * 7919) % ids.length]}`,
    () => "/api/servers?limit=100"
  ]
  // Every server is read before the measurement.
  yield* send(one, { requests: Math.max(count, WARM_READS) })
  const read = yield* cpuOf(one)
  yield* send(some, { millis: MILLIS })
  const page = yield* cpuOf(some)
  const { resident, used } = yield* memoryOf(service)
  return [
    { figure: "start until ready", unit: "ms", value: started },
    { figure: "CPU time of a read", unit: "µs", value: read },
    { figure: "CPU time of a page of 100", unit: "µs", value: page },
    { figure: "memory in use", unit: "MiB", value: used / MIB },
    { figure: "resident memory", unit: "MiB", value: resident / MIB }
  ]
}, Effect.scoped)

/** Returns the memory of one of the most servers in KiB: what the service has more than with the fewest. */
const ofOneServer = (
  measured: ReadonlyArray<readonly [number, ReadonlyArray<Cost>]>,
  figure: string
): number => {
  const mebibytes = (at: number) =>
    measured.at(at)?.[1].find((cost) => cost.figure === figure)?.value ?? Number.NaN
  const servers = (measured.at(-1)?.[0] ?? 0) - (measured[0]?.[0] ?? 0)
  return ((mebibytes(-1) - mebibytes(0)) * 1024) / servers
}

/** Returns the CPU time of an event to one subscriber of a server. @param file `memoryHub.ts` or `plainHub.ts` */
const delivery = Effect.fnUntraced(function* (file: string, count: number) {
  const rate = Math.min(MOST_EVENTS, Math.round(DELIVERED / count))
  const { pid, url } = yield* startServer(join(import.meta.dirname, file), [String(rate)])
  yield* openStreams({ url, path: "/events" }, count, () => {})
  yield* Effect.sleep(MILLIS)
  const before = yield* cpuMicros(pid)
  yield* Effect.sleep(2 * MILLIS)
  return ((yield* cpuMicros(pid)) - before) / (rate * count * ((2 * MILLIS) / 1000))
}, Effect.scoped)

const ofDeliveries = Effect.fnUntraced(function* (count: number) {
  yield* print({
    bench: "scaling",
    figure: `CPU time of an event to one subscriber, ${numbers.format(count)} subscribers`,
    value: yield* delivery("memoryHub.ts", count),
    unit: "µs",
    baseline: "the same bytes to as many responses of a plain server",
    baseline_value: yield* delivery("plainHub.ts", count)
  })
})

/** Returns the memory of an idle subscriber of the service in KiB. */
const memory = Effect.fnUntraced(function* (count: number) {
  const most = String(count + 1_000)
  const service = yield* startService({
    env: { MUSTER_EMBEDDED_NODE: "false", MUSTER_STREAMS: most, MUSTER_STREAMS_PER_KEY: most }
  })
  const pid = service.process.pid ?? 0
  const target = { url: service.url, path: "/api/events", key: service.key }
  yield* Effect.scoped(openStreams(target, 100, () => {}))
  yield* Effect.sleep(MILLIS)
  const before = yield* residentMiB(pid)
  yield* openStreams(target, count, () => {})
  yield* Effect.sleep(MILLIS)
  return (((yield* residentMiB(pid)) - before) * 1024) / count
}, Effect.scoped)

const ofSubscribers = Effect.fnUntraced(function* (count: number) {
  return [{ figure: "memory of an idle subscriber", unit: "KiB", value: yield* memory(count) }]
})

const each = <A, E, R>(counts: ReadonlyArray<number>, of: (count: number) => Effect.Effect<A, E, R>) =>
  Effect.forEach(counts, (count) => Effect.map(of(count), (costs) => [count, costs] as const))

export const scaling = Effect.gen(function* () {
  const servers = yield* each(SERVERS, ofServers)
  yield* printAll("servers", servers)
  yield* print({
    bench: "scaling",
    figure: `memory in use of one of ${numbers.format(SERVERS.at(-1) ?? 0)} servers`,
    value: ofOneServer(servers, "memory in use"),
    unit: "KiB",
    baseline: "its resident memory",
    baseline_value: ofOneServer(servers, "resident memory")
  })
  yield* Effect.forEach(SUBSCRIBERS, ofDeliveries)
  yield* printAll("subscribers", yield* each(SUBSCRIBERS, ofSubscribers))
})
