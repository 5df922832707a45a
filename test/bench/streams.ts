/**
 * The streams of the service, over commits to SQLite: CPU time and delay of events to 500 subscribers, SSE and WebSocket,
 * also beside subscribers that do not read, and the memory of idle subscribers.
 */
import { join } from "node:path"
import { Effect } from "effect"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { cpuMicros, print, residentMiB, startBare, startServer } from "./harness.ts"
import { openStreams, subscribersInProcess } from "./subscribers.ts"

const SUBSCRIBERS = 500
/** Subscribers whose events are timed; the others only read, so that reading does not take the time that is measured. */
const TIMED = 50
const SLOW = 20
const IDLE = 2_000
const WARMUP_MILLIS = 2_000
const MILLIS = 5_000

/** The message of an event; SSE adds the topic and ends of lines, WebSocket the head of a frame. */
const TEXT_BYTES = JSON.stringify({
  Topic: "crash",
  Data: {
    server_id: "srv_1",
    payload: { reason: "1766584445000.12", exit_code: 1, timestamp: "2026-01-01T00:00:00Z" }
  }
}).length
const SSE_BYTES = TEXT_BYTES + "event: crash\ndata: \n\n".length
const WEB_SOCKET_BYTES = TEXT_BYTES + 4

const startHub = Effect.fnUntraced(function* (rate: number) {
  const filename = join(yield* temporaryFolder, "muster.db")
  return yield* startServer(join(import.meta.dirname, "hub.ts"), [filename, String(rate)])
})

/** Measures the delivery of events to subscribers, beside others that do not read. */
const deliver = Effect.fnUntraced(function* (
  rate: number,
  options: { slow?: number; isWebSocket?: boolean }
) {
  const { isWebSocket = false, slow = 0 } = options
  const server = yield* startHub(rate)
  const target = { url: server.url, path: isWebSocket ? "/events/ws" : "/events", isWebSocket }
  const others = SUBSCRIBERS - TIMED
  const during = yield* subscribersInProcess({ ...target, timed: TIMED, others })
  for (const socket of yield* openStreams(target, slow, () => {})) socket.pause()
  yield* Effect.sleep(WARMUP_MILLIS)
  const before = yield* cpuMicros(server.pid)
  const { received } = yield* during(Effect.sleep(MILLIS))
  const cpu = (yield* cpuMicros(server.pid)) - before
  return { ...received, cpu: (cpu / received.bytes) * (isWebSocket ? WEB_SOCKET_BYTES : SSE_BYTES) }
}, Effect.scoped)

/** Returns the memory of an idle subscriber in KiB. */
const memory = Effect.fnUntraced(function* (server: ReturnType<typeof startHub>) {
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

export const streams = Effect.gen(function* () {
  const low = yield* deliver(LOW_RATE, {})
  const high = yield* deliver(RATE, {})
  const beside = yield* deliver(RATE, { slow: SLOW })
  const webSocket = yield* deliver(RATE, { isWebSocket: true })
  const common = { bench: "streams", unit: "ms" }
  // The timed ones have the oldest event of each chunk that they read.
  const figure = `p99 from the write to ${SUBSCRIBERS} subscribers, of which ${TIMED} are timed, ${RATE} events/s`
  const p99 = (value: number, more: string, baseline: string, baseline_value: number) =>
    print({ ...common, figure: `${figure}${more}`, value, baseline, baseline_value })
  yield* p99(high.p99, "", `${LOW_RATE} events/s`, low.p99)
  yield* p99(beside.p99, `, beside ${SLOW} that do not read`, "without them", high.p99)
  yield* p99(webSocket.p99, ", over WebSocket", "over SSE", high.p99)
  const cpu = `CPU time of a delivered event, ${RATE} events/s`
  yield* print({
    ...common,
    figure: cpu,
    unit: "µs",
    value: high.cpu,
    baseline: `${LOW_RATE} events/s`,
    baseline_value: low.cpu
  })
  yield* print({
    ...common,
    figure: `${cpu}, over WebSocket`,
    unit: "µs",
    value: webSocket.cpu,
    baseline: "over SSE",
    baseline_value: high.cpu
  })
  yield* print({
    ...common,
    figure: "memory of an idle subscriber",
    unit: "KiB",
    value: yield* memory(startHub(0)),
    baseline: "bare node:http",
    baseline_value: yield* memory(startBare("events"))
  })
})
