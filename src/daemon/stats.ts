import { Effect, Semaphore } from "effect"
import { elapsedMillis } from "../domain/elapsed.ts"
import type { ServerStats } from "../domain/Server.ts"
import type { IoError } from "./disk/fsio.ts"
import type { DiskUsage, InstanceFiles } from "./files/InstanceFiles.ts"
import type { Instance } from "./instances/Instance.ts"
import type { Run, Usage } from "./runtime/Runtime.ts"

const MIB = 1024 * 1024
const MB = 1_000_000
/** Shortest time over which processor use is measured, in ms: the kernel counts in steps of 10. */
const SHORTEST = 100

interface Sample {
  readonly run: Run
  readonly at: number
  readonly cpu_ms: number
}

const none: Usage = { memory_bytes: 0, cpu_ms: 0, uptime_ms: 0, network: { rx_bytes: 0, tx_bytes: 0 } }

/** Live figures of servers. Nothing is measured while nobody asks. */
export const makeStats = Effect.fnUntraced(function* (files: InstanceFiles["Service"]) {
  const samples = new WeakMap<Instance, Sample>()
  const shares = new WeakMap<Instance, number>()
  const disks = new WeakMap<Instance, DiskUsage>()
  const walking = yield* Semaphore.make(2)

  const take = Effect.fnUntraced(function* (run: Run) {
    const usage = (yield* run.usage) ?? none
    return { usage, sample: { run, at: yield* elapsedMillis, cpu_ms: usage.cpu_ms } }
  })

  /** Percent of one thread since the last sample; the first time, over a tenth of a second. */
  const measure = Effect.fnUntraced(function* (instance: Instance, run: Run) {
    const first = yield* take(run)
    if (first.usage.cpu_percent !== undefined) return { usage: first.usage, cpu: first.usage.cpu_percent }
    const known = samples.get(instance)
    const fresh = known?.run === run ? known : undefined
    const before = fresh ?? first.sample
    if (fresh === undefined) yield* Effect.sleep(SHORTEST)
    const { usage, sample } = fresh === undefined ? yield* take(run) : first
    const elapsed = sample.at - before.at
    if (elapsed < SHORTEST) return { usage, cpu: shares.get(instance) ?? 0 }
    const cpu = Math.max(0, Math.round(((sample.cpu_ms - before.cpu_ms) / elapsed) * 1000) / 10)
    samples.set(instance, sample)
    shares.set(instance, cpu)
    return { usage, cpu }
  })

  const diskOf = Effect.fnUntraced(function* (instance: Instance, anew: boolean) {
    const known = disks.get(instance)
    if (known !== undefined && !anew) return known
    const usage = yield* walking.withPermit(files.usage(instance.folder, instance.file.get().spec))
    disks.set(instance, usage)
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
