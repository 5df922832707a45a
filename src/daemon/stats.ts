import { Effect, Semaphore } from "effect"
import { diskLimitBytes, memoryLimitBytes } from "../contract/domain/Limits.ts"
import type { ServerStats, ServerWarning } from "../contract/domain/Server.ts"
import { elapsedMillis } from "../shared/work/elapsed.ts"
import { makeKeyedLock } from "../shared/work/KeyedLock.ts"
import type { DiskUsage } from "./files/diskUsage.ts"
import type { InstanceFiles } from "./files/InstanceFiles.ts"
import type { Instance } from "./instances/Instance.ts"
import { serverWarnings } from "./instances/serverWarnings.ts"
import type { Run, Usage } from "./runtime/Runtime.ts"

/** The shortest interval of a CPU measurement, in ms: the kernel counts in steps of 10. */
const MIN_INTERVAL_MS = 100
/** The age of a disk measurement after which `soon` has another one made, in ms. */
const DISK_AGE_MS = 300_000
/** A measurement of the disk that takes longer is repeated after ten times its time, or the pause, in ms. */
const LONG_MS = 100
const PAUSE_MS = 10_000
/** The longest measurement of a server among others. */
const SOON = "4 seconds"

interface Sample {
  readonly run: Run
  readonly at: number
  readonly cpu_ms: number
}

interface DiskSample extends DiskUsage {
  readonly at: number
  /** The time that it took, in ms. */
  readonly took: number
}

interface Measured {
  readonly usage: Usage | undefined
  readonly cpu: number | undefined
}

const none: Measured = {
  usage: { memory_bytes: 0, cpu_ms: 0, uptime_ms: 0, network: { rx_bytes: 0, tx_bytes: 0 } },
  cpu: 0
}
const unknown: Measured = { usage: undefined, cpu: undefined }

/** Measurements of the disk that `soon` begins end with the scope. */
export const makeStats = Effect.fnUntraced(function* (files: InstanceFiles["Service"]) {
  const samples = new WeakMap<Instance, Sample>()
  const lastPercent = new WeakMap<Instance, number>()
  const disks = new WeakMap<Instance, DiskSample>()
  const begun = new WeakSet<Instance>()
  const measuring = yield* Semaphore.make(2)
  const turns = makeKeyedLock()
  const scope = yield* Effect.scope

  const sampleOf = Effect.fnUntraced(function* (run: Run) {
    const usage = yield* run.usage
    if (usage === undefined) return undefined
    return { usage, sample: { run, at: yield* elapsedMillis, cpu_ms: usage.cpu_ms } }
  })

  /** Returns the CPU usage in percent of one thread since the last sample; the first time, over 100 ms. */
  const measure = Effect.fnUntraced(function* (instance: Instance, run: Run): Effect.fn.Return<Measured> {
    const first = yield* sampleOf(run)
    if (first === undefined) return unknown
    const known = samples.get(instance)
    const fresh = known?.run === run ? known : undefined
    const before = fresh ?? first.sample
    if (fresh === undefined) yield* Effect.sleep(MIN_INTERVAL_MS)
    const second = fresh === undefined ? yield* sampleOf(run) : first
    if (second === undefined) return unknown
    const { sample, usage } = second
    const elapsed = sample.at - before.at
    if (elapsed < MIN_INTERVAL_MS) return { usage, cpu: lastPercent.get(instance) }
    const cpu = Math.max(0, Math.round(((sample.cpu_ms - before.cpu_ms) / elapsed) * 1000) / 10)
    samples.set(instance, sample)
    lastPercent.set(instance, cpu)
    return { usage, cpu }
  })

  /** Callers of a moment share a measurement, and a long one is not repeated at once. */
  const measureDisk = Effect.fnUntraced(function* (instance: Instance) {
    const askedAt = yield* elapsedMillis
    const once = Effect.gen(function* () {
      const known = disks.get(instance)
      const begunAt = yield* elapsedMillis
      if (known !== undefined && known.at > askedAt) return known
      const pause = known !== undefined && known.took > LONG_MS ? Math.min(PAUSE_MS, 10 * known.took) : 0
      if (known !== undefined && begunAt - known.at < pause) return known
      const usage = yield* measuring.withPermit(files.usage(instance.folder, instance.file.get().spec))
      const at = yield* elapsedMillis
      disks.set(instance, { ...usage, at, took: at - begunAt })
      return usage
    })
    return yield* turns.withLock(instance.folder)(once)
  })

  const measured = (instance: Instance) =>
    Effect.suspend(() => {
      const run = instance.run()
      return run === undefined ? Effect.succeed(none) : measure(instance, run)
    })

  const warningsOf = (instance: Instance) =>
    Effect.suspend(() => serverWarnings(instance.file.get().spec, instance.run()))

  const statsOf = (
    instance: Instance,
    { cpu, usage }: Measured,
    disk: DiskUsage | undefined,
    warnings: ReadonlyArray<ServerWarning>
  ): ServerStats => {
    const { spec, status } = instance.file.get()
    const { limits } = spec.definition
    return {
      memory_bytes: usage?.memory_bytes ?? null,
      memory_limit_bytes: memoryLimitBytes(limits),
      cpu_absolute: cpu ?? null,
      cpu_absolute_limit: limits.cpu_limit ?? 0,
      network: usage?.network ?? { rx_bytes: null, tx_bytes: null },
      uptime: usage === undefined ? null : Math.round(usage.uptime_ms),
      state: status,
      disk_bytes: disk?.disk_bytes ?? null,
      disk_max: diskLimitBytes(limits),
      overlay_bytes: disk?.overlay_bytes ?? null,
      ...(warnings.length === 0 ? {} : { warnings })
    }
  }

  const renewDisk = Effect.fnUntraced(function* (instance: Instance) {
    const { at = Number.NEGATIVE_INFINITY } = disks.get(instance) ?? {}
    if (begun.has(instance) || (yield* elapsedMillis) - at < DISK_AGE_MS) return
    begun.add(instance)
    yield* measureDisk(instance).pipe(
      Effect.catch((error) => Effect.logDebug(error.message)),
      Effect.ensuring(Effect.sync(() => begun.delete(instance))),
      Effect.forkIn(scope)
    )
  })

  return {
    /** Measures the disk, too, unless it has been measured before. */
    of: Effect.fnUntraced(function* (
      instance: Instance,
      { update_disk_usage }: { readonly update_disk_usage: boolean }
    ) {
      const found = yield* measured(instance)
      const known = update_disk_usage ? undefined : disks.get(instance)
      const disk = known ?? (yield* measureDisk(instance))
      return statsOf(instance, found, disk, yield* warningsOf(instance))
    }),
    /** Waits for no measurement of the disk: one begins if the last is old, and its figures come with a later request. */
    soon: Effect.fnUntraced(function* (instance: Instance) {
      yield* renewDisk(instance)
      const found = yield* Effect.timeoutOrElse(measured(instance), {
        duration: SOON,
        orElse: () => Effect.succeed(unknown)
      })
      return statsOf(instance, found, disks.get(instance), yield* warningsOf(instance))
    })
  }
})
