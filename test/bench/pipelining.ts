/** `/healthz` while 50 connections pipeline 5,000 requests each, against the same service without them. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { startService } from "../support/Service.ts"
import { print } from "./harness.ts"
import { load } from "./load.ts"

const CONNECTIONS = 50
const REQUESTS = 5_000
const MILLIS = 10_000

const flood = (url: string) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [join(import.meta.dirname, "flood.ts"), url, `${CONNECTIONS}`, `${REQUESTS}`], {
        stdio: ["ignore", "pipe", "inherit"]
      })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  ).pipe(Effect.tap((child) => Effect.promise(() => once(child.stdout, "data"))))

/** Returns the peak memory of a process in MiB. */
const peakOf = (pid: number | undefined) =>
  Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

export const pipelining = Effect.gen(function* () {
  const service = yield* startService({ env: { MUSTER_EMBEDDED_NODE: "false" } })
  const probe = load({
    url: service.url,
    key: service.key,
    connections: 1,
    millis: MILLIS,
    status: 200,
    request: () => ({ method: "GET", path: "/healthz" })
  })
  const quiet = yield* probe
  const quietPeak = peakOf(service.process.pid)
  yield* flood(service.url)
  const flooded = yield* probe
  const common = { bench: "pipelining", baseline: "the same without the flood" }
  yield* print({
    ...common,
    figure: "p99 of /healthz during a flood",
    value: flooded.p99,
    unit: "ms",
    baseline_value: quiet.p99
  })
  yield* print({
    ...common,
    figure: "peak memory",
    value: peakOf(service.process.pid),
    unit: "MiB",
    baseline_value: quietPeak
  })
}).pipe(Effect.scoped)
