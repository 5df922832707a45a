/** Memory of the idle service, against a bare server. */
import { Effect } from "effect"
import { startService } from "../support/Service.ts"
import { interleaved, median, poll, print, residentMiB, startBare } from "./harness.ts"

const ROUNDS = 3
const SAMPLE_MILLIS = 100
/** Memory has settled if this many samples in a row differ by no more than this share. */
const SAMPLES = 20
const SHARE = 0.01

/** Returns the resident memory once it has settled. */
const settled = (pid: number) => {
  const samples: Array<number> = []
  return poll(
    `memory of process ${pid} settles`,
    Effect.map(residentMiB(pid), (now) => {
      samples.push(now)
      if (samples.length > SAMPLES) samples.shift()
      const quiet = samples.length === SAMPLES && Math.max(...samples) - Math.min(...samples) <= now * SHARE
      return quiet ? now : undefined
    }),
    { every: SAMPLE_MILLIS }
  )
}

const ofService = Effect.gen(function* () {
  const service = yield* startService({ env: { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-20099" } })
  yield* service.request("GET", "/healthz")
  return yield* settled(service.process.pid ?? 0)
}).pipe(Effect.scoped)

const ofBare = Effect.gen(function* () {
  const { pid, url } = yield* startBare("plain")
  yield* Effect.promise(() => fetch(url).then((response) => response.text()))
  return yield* settled(pid)
}).pipe(Effect.scoped)

export const idle = Effect.gen(function* () {
  const { subjects, baselines } = yield* interleaved(ROUNDS, ofService, ofBare)
  yield* print({
    bench: "idle",
    figure: "resident memory",
    value: median(subjects),
    unit: "MiB",
    baseline: "bare node:http",
    baseline_value: median(baselines)
  })
})
