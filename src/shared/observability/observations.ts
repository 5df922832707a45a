/** Figures that are read when `/metrics` is, and not counted as events occur. */
import { Context, type Duration, Effect, Metric, Schedule } from "effect"

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
