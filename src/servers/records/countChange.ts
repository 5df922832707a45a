import { Effect, Metric } from "effect"
import {
  crashes,
  installationDuration,
  installations,
  restarts,
  startDuration
} from "../../domain/metrics.ts"
import { isRestartPending } from "../../domain/Restart.ts"
import type { Changed } from "./recordChanges.ts"

/** The label of a crash; its reasons are those of `crash` events (spec 3.5). */
const causeOf = (reason: string): string => {
  if (reason === "out of memory") return "out_of_memory"
  if (reason === "start timed out") return "start_timeout"
  return reason.startsWith("signal") ? "signal" : "exit_code"
}

/** Seconds between two times, or until now; undefined: a time is missing or cannot be read. */
const secondsFrom = (from: string | undefined, to: string | undefined): number | undefined => {
  const seconds = (Date.parse(to ?? "") - Date.parse(from ?? "")) / 1000
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds)
}

const endAs = (outcome: "ready" | "failed") => ({
  count: Metric.withAttributes(installations, { outcome }),
  duration: Metric.withAttributes(installationDuration, { outcome })
})
const ends = { ready: endAs("ready"), failed: endAs("failed") }

/** Counts a committed report of a node. @param at time of its receipt, RFC 3339 */
export const countChange = Effect.fnUntraced(function* ({ outcome, record }: Changed, at: string) {
  const { crash, details, install, status } = outcome
  if (crash !== undefined) {
    yield* Metric.update(Metric.withAttributes(crashes, { cause: causeOf(crash.reason) }), 1)
    const restart = details?.restart
    if (restart !== undefined) {
      const outcome = isRestartPending(restart) ? "pending" : "given_up"
      yield* Metric.update(Metric.withAttributes(restarts, { outcome }), 1)
    }
  }
  const isEnd = install?.phase === "ready" || install?.phase === "failed"
  if (isEnd && install.phase !== record.install.phase) {
    const { count, duration } = ends[install.phase]
    yield* Metric.update(count, 1)
    const seconds = secondsFrom(install.started_at, install.finished_at)
    if (seconds !== undefined) yield* Metric.update(duration, seconds)
  }
  if (status === "running" && record.status === "starting") {
    const seconds = secondsFrom(record.updated_at, at)
    if (seconds !== undefined) yield* Metric.update(startDuration, seconds)
  }
})
