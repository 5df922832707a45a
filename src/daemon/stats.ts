import { Effect, Semaphore } from "effect"
import { elapsedMillis } from "../domain/elapsed.ts"
import type { ServerStats } from "../domain/Server.ts"
import type { IoError } from "./disk/fsio.ts"
import type { DiskUsage, InstanceFiles } from "./files/InstanceFiles.ts"
import type { Instance } from "./instances/Instance.ts"
import type { Run, Usage } from "./runtime/Runtime.ts"

const MIB = 1024 * 1024
const MB = 1_000_000
/** The shortest interval of a CPU measurement, in ms: the kernel counts in steps of 10. */
const MIN_INTERVAL_MS = 100

interface Sample {
  readonly run: Run
  readonly at: number
  readonly cpu_ms: number
}

const none: Usage = { memory_bytes: 0, cpu_ms: 0, uptime_ms: 0, network: { rx_bytes: 0, tx_bytes: 0 } }

/** Measures servers on request. */
export const makeStats = Effect.fnUntraced(function* (files: InstanceFiles["Service"]) {
  const samples = new WeakMap<Instance, Sample>()
  const lastPercent = new WeakMap<Instance, number>()
  const diskUsages = new WeakMap<Instance, DiskUsage>()
  const measuring = yield* Semaphore.make(2)

  const sampleOf = Effect.fnUntraced(function* (run: Run) {
    const usage = (yield* run.usage) ?? none
    return { usage, sample: { run, at: yield* elapsedMillis, cpu_ms: usage.cpu_ms } }
  })

  /** Returns the CPU usage in percent of one thread since the last sample; the first time, over 100 ms. */
  const measure = Effect.fnUntraced(function* (instance: Instance, run: Run) {
    const first = yield* sampleOf(run)
    if (first.usage.cpu_percent !== undefined) return { usage: first.usage, cpu: first.usage.cpu_percent }
    const known = samples.get(instance)
    const fresh = known?.run === run ? known : undefined
    const before = fresh ?? first.sample
    if (fresh === undefined) yield* Effect.sleep(MIN_INTERVAL_MS)
    const { usage, sample } = fresh === undefined ? yield* sampleOf(run) : first
    const elapsed = sample.at - before.at
    if (elapsed < MIN_INTERVAL_MS) return { usage, cpu: lastPercent.get(instance) ?? 0 }
    const cpu = Math.max(0, Math.round(((sample.cpu_ms - before.cpu_ms) / elapsed) * 1000) / 10)
    samples.set(instance, sample)
    lastPercent.set(instance, cpu)
    return { usage, cpu }
  })

  const diskOf = Effect.fnUntraced(function* (instance: Instance, refresh: boolean) {
    const known = diskUsages.get(instance)
    if (known !== undefined && !refresh) return known
    const usage = yield* measuring.withPermit(files.usage(instance.folder, instance.file.get().spec))
    diskUsages.set(instance, usage)
    return usage
  })

  return Effect.fnUntraced(function* (
    instance: Instance,
    options: { readonly update_disk_usage: boolean }
  ): Effect.fn.Return<ServerStats, IoError> {
    const { spec } = instance.file.get()
    const { limits } = spec.definition
    const run = instance.run()
    const { usage, cpu } = run === undefined ? { usage: none, cpu: 0 } : yield* measure(instance, run)
    const { disk_bytes, overlay_bytes } = yield* diskOf(instance, options.update_disk_usage)
    return {
      memory_bytes: usage.memory_bytes,
      memory_limit_bytes: Math.round((limits.memory_limit ?? 0) * MIB),
      cpu_absolute: cpu,
      cpu_absolute_limit: limits.cpu_limit ?? 0,
      network: usage.network,
      uptime: Math.round(usage.uptime_ms),
      state: instance.file.get().status,
      disk_bytes,
      disk_max: Math.round((limits.disk_space ?? 0) * MB),
      overlay_bytes
    }
  })
})
