/**
 * The streams of the service, over commits to SQLite: CPU time and delay of events to 500 subscribers, SSE and WebSocket,
 * also beside subscribers that do not read, and the memory of idle subscribers.
 */
import { join } from "node:path"
import { Effect } from "effect"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { cpuMicros, interleaved, median, print, residentMiB, startBare, startServer } from "./harness.ts"
import { openStreams, subscribersInProcess, type Target } from "./subscribers.ts"

const SUBSCRIBERS = 500
/** Subscribers whose events are timed; the others only read, so that reading does not take the time that is measured. */
const TIMED = 50
const SLOW = 20
const IDLE = 10_000
const WARMUP_MILLIS = 2_000
const MILLIS = 3_000
/** Measurements of each figure, of which the median counts. */
const ROUNDS = 7
/** Events a second, and those of the baseline. */
const RATE = 2_000
const LOW_RATE = 100

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

/** Starts a server and its subscribers; returns how to measure the delivery of events. */
const startDelivery = Effect.fnUntraced(function* (rate: number, isWebSocket = false) {
  const server = yield* startHub(rate)
  const target = { url: server.url, path: isWebSocket ? "/events/ws" : "/events", isWebSocket }
  const during = yield* subscribersInProcess({ ...target, timed: TIMED, others: SUBSCRIBERS - TIMED })
  yield* Effect.sleep(WARMUP_MILLIS)
  const measured = Effect.gen(function* () {
    const before = yield* cpuMicros(server.pid)
    const { received } = yield* during(Effect.sleep(MILLIS))
    const cpu = (yield* cpuMicros(server.pid)) - before
    return { ...received, cpu: (cpu / received.bytes) * (isWebSocket ? WEB_SOCKET_BYTES : SSE_BYTES) }
  })
  return { target, measured }
})

const deliver = (rate: number, isWebSocket = false) =>
  startDelivery(rate, isWebSocket).pipe(
    Effect.flatMap(({ measured }) => Effect.replicateEffect(measured, ROUNDS)),
    Effect.scoped
  )

/** Opens subscribers that do not read. */
const stalled = Effect.fnUntraced(function* (target: Target) {
  for (const socket of yield* openStreams(target, SLOW, () => {})) socket.pause()
})

/**
 * Measures one server alternately with and without subscribers that do not read: a disturbance of the machine is as large
 * as the difference.
 */
const deliverBeside = Effect.gen(function* () {
  const { measured, target } = yield* startDelivery(RATE)
  return yield* interleaved(ROUNDS, Effect.scoped(Effect.andThen(stalled(target), measured)), measured)
}).pipe(Effect.scoped)

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

export const streams = Effect.gen(function* () {
  const low = yield* deliver(LOW_RATE)
  const { subjects: beside, baselines: high } = yield* deliverBeside
  const webSocket = yield* deliver(RATE, true)
  const p99Of = (windows: ReadonlyArray<{ readonly p99: number }>) => median(windows.map(({ p99 }) => p99))
  const cpuOf = (windows: ReadonlyArray<{ readonly cpu: number }>) => median(windows.map(({ cpu }) => cpu))
  const common = { bench: "streams", unit: "ms" }
  // The timed ones have the oldest event of each chunk that they read.
  const figure = `p99 from the write to ${SUBSCRIBERS} subscribers, of which ${TIMED} are timed, ${RATE} events/s`
  const p99 = (value: number, more: string, baseline: string, baseline_value: number) =>
    print({ ...common, figure: `${figure}${more}`, value, baseline, baseline_value })
  yield* p99(p99Of(high), "", `${LOW_RATE} events/s`, p99Of(low))
  yield* p99(p99Of(beside), `, beside ${SLOW} that do not read`, "without them", p99Of(high))
  yield* p99(p99Of(webSocket), ", over WebSocket", "over SSE", p99Of(high))
  const cpu = `CPU time of a delivered event, ${RATE} events/s`
  yield* print({
    ...common,
    figure: cpu,
    unit: "µs",
    value: cpuOf(high),
    baseline: `${LOW_RATE} events/s`,
    baseline_value: cpuOf(low)
  })
  yield* print({
    ...common,
    figure: `${cpu}, over WebSocket`,
    unit: "µs",
    value: cpuOf(webSocket),
    baseline: "over SSE",
    baseline_value: cpuOf(high)
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
