/** Figures that are read when `/metrics` is, and not counted as events occur. */

import { readdirSync, readFileSync } from "node:fs"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { Context, type Duration, Effect, Metric, Option, Schedule } from "effect"
import { buildInfo, cpuSeconds, eventLoopLag, maxFds, openFds, residentBytes, startTime } from "./metrics.ts"

/** The interval at which figures are read for an exporter, if there is one. */
export const ObserveEvery = Context.Reference<Duration.Duration | undefined>("muster/http/ObserveEvery", {
  defaultValue: () => undefined
})

/** Reads figures for an exporter until the scope closes. */
export const observeForExporter = Effect.fnUntraced(function* (observe: Effect.Effect<void>) {
  const every = yield* ObserveEvery
  if (every !== undefined) yield* Effect.forkScoped(Effect.repeat(observe, Schedule.spaced(every)))
})

export interface Series {
  readonly gauge: Metric.Metric<number, unknown>
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Returns a function that sets all series of some gauges, and removes those that it set before and are gone. */
export const makeSeries = () => {
  let shown = new Map<string, Metric.Metric<number, unknown>>()
  return Effect.fnUntraced(function* (all: ReadonlyArray<Series>) {
    const now = new Map<string, Metric.Metric<number, unknown>>()
    for (const { gauge, labels, value } of all) {
      const key = JSON.stringify([gauge.id, labels])
      const series = shown.get(key) ?? Metric.withAttributes(gauge, labels)
      now.set(key, series)
      yield* Metric.update(series, value)
    }
    for (const [key, series] of shown) if (!now.has(key)) yield* Metric.remove(series)
    shown = now
  })
}

/** Returns a function that advances a counter to a total. */
export const makeTotal = (counter: Metric.Metric<number, unknown>) => {
  let counted = 0
  return (total: number) =>
    Effect.suspend(() => {
      const difference = total - counted
      counted = total
      return Metric.update(counter, difference)
    })
}

export const LIMITS = "/proc/self/limits"

/** Returns how many files a process may have open, if limited and known, from the text of {@link LIMITS}. */
export const openFilesIn = (limits: string): number | undefined => {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]
  return soft === undefined ? undefined : Number(soft)
}

const LAG_RESOLUTION_MS = 10

/** None on systems without `/proc`. */
const openFiles = Option.liftThrowable(() => readdirSync("/proc/self/fd").length)
const limitOfFiles = Option.liftThrowable(() => openFilesIn(readFileSync(LIMITS, "utf8")))

/** Returns an effect that updates the metrics of this process; it runs before each response of `/metrics`. */
export const makeObserveProcess = Effect.fnUntraced(function* (version: string) {
  const cpu = makeTotal(cpuSeconds)
  const delay = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const histogram = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS })
      histogram.enable()
      return histogram
    }),
    (histogram) => Effect.sync(() => histogram.disable())
  )
  yield* Metric.update(Metric.withAttributes(buildInfo, { version, node_version: process.versions.node }), 1)
  yield* Metric.update(startTime, Math.round(performance.timeOrigin) / 1000)
  return Effect.gen(function* () {
    const { system, user } = process.cpuUsage()
    yield* cpu((system + user) / 1e6)
    yield* Metric.update(residentBytes, process.memoryUsage.rss())
    const open = openFiles()
    if (Option.isSome(open)) yield* Metric.update(openFds, open.value)
    const most = Option.getOrUndefined(limitOfFiles())
    if (most !== undefined) yield* Metric.update(maxFds, most)
    for (const [percentile, nanoseconds] of [
      ["50", delay.percentile(50)],
      ["99", delay.percentile(99)],
      ["100", delay.max]
    ] as const) {
      // The histogram measures from tick to tick: without lag it shows its resolution.
      const seconds = Math.max(0, nanoseconds / 1e9 - LAG_RESOLUTION_MS / 1000)
      yield* Metric.update(Metric.withAttributes(eventLoopLag, { percentile }), seconds)
    }
    delay.reset()
  })
})
