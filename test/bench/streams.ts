/**
 * The streams of the service, over a journal in memory: CPU time and delay of events to 500 SSE subscribers, also beside
 * subscribers that do not read, and the memory of idle subscribers.
 */
import { join } from "node:path"
import { Effect } from "effect"
import { cpuMicros, print, residentMiB, startBare, startServer } from "./harness.ts"
import { openStreams } from "./subscribers.ts"

const SUBSCRIBERS = 500
const SLOW = 20
const IDLE = 2_000
const WARMUP_MILLIS = 2_000
const MILLIS = 5_000

const now = () => performance.timeOrigin + performance.now()

const percentile99 = (sorted: ReadonlyArray<number>) => sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN

/** Measures the delivery of events to subscribers, beside others that do not read. */
const deliver = Effect.fnUntraced(function* (rate: number, slow: number) {
  const server = yield* startServer(join(import.meta.dirname, "hub.ts"), [String(rate)])
  const delays: Array<number> = []
  let bytes = 0
  const target = { url: server.url, path: "/events" }
  yield* openStreams(target, SUBSCRIBERS, (chunk) => {
    bytes += chunk.length
    const at = chunk.indexOf('"reason":"')
    if (at !== -1) delays.push(now() - Number.parseFloat(chunk.toString("latin1", at + 10, at + 30)))
  })
  for (const socket of yield* openStreams(target, slow, () => {})) socket.pause()
  yield* Effect.sleep(WARMUP_MILLIS)
  delays.length = 0
  bytes = 0
  const before = yield* cpuMicros(server.pid)
  yield* Effect.sleep(MILLIS)
  const cpu = (yield* cpuMicros(server.pid)) - before
  // Of the oldest event of each write.
  return { delays: delays.toSorted((a, b) => a - b), bytes, cpu }
}, Effect.scoped)

/** Returns the memory of an idle subscriber in KiB. */
const memory = Effect.fnUntraced(function* (server: ReturnType<typeof startServer>) {
  const { pid, url } = yield* server
  const target = { url, path: "/events" }
  yield* openStreams(target, 100, () => {})
  const before = yield* residentMiB(pid)
  yield* openStreams(target, IDLE, () => {})
  yield* Effect.sleep(WARMUP_MILLIS)
  return (((yield* residentMiB(pid)) - before) * 1024) / IDLE
}, Effect.scoped)

/** Events a second, and those of the baseline. */
const RATE = 2_000
const LOW_RATE = 100

const bytesOfEvent = 120

export const streams = Effect.gen(function* () {
  const low = yield* deliver(LOW_RATE, 0)
  const high = yield* deliver(RATE, 0)
  const beside = yield* deliver(RATE, SLOW)
  const common = { bench: "streams", unit: "ms" }
  const figure = `p99 from publication to ${SUBSCRIBERS} subscribers, ${RATE} events/s`
  yield* print({
    ...common,
    figure,
    value: percentile99(high.delays),
    baseline: `${LOW_RATE} events/s`,
    baseline_value: percentile99(low.delays)
  })
  yield* print({
    ...common,
    figure: `${figure}, beside ${SLOW} that do not read`,
    value: percentile99(beside.delays),
    baseline: "without them",
    baseline_value: percentile99(high.delays)
  })
  yield* print({
    ...common,
    figure: `CPU time of a delivered event, ${RATE} events/s`,
    unit: "µs",
    value: high.cpu / (high.bytes / bytesOfEvent),
    baseline: `${LOW_RATE} events/s`,
    baseline_value: low.cpu / (low.bytes / bytesOfEvent)
  })
  yield* print({
    ...common,
    figure: "memory of an idle subscriber",
    unit: "KiB",
    value: yield* memory(startServer(join(import.meta.dirname, "hub.ts"), ["0"])),
    baseline: "bare node:http",
    baseline_value: yield* memory(startBare("events"))
  })
})
