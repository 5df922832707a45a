import { Schema, Struct } from "effect"
import { inUnit, type Unit } from "./units.ts"

const bounded = (minimum: number, maximum: number, unit: Unit) =>
  Schema.Finite.check(Schema.isBetween({ minimum, maximum }, inUnit(unit)))

/** A cpuset list such as `0-3,6`; empty: every thread. */
export const CpuSet = Schema.String.check(
  Schema.isPattern(/^(?:\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*)?$/u, {
    expected: 'a cpuset such as "0-3,6"'
  })
)

/** The weight of the disk time; 0: none. */
const WEIGHTS = { expected: "0, or a value between 10 and 1000" }
const IoWeight = Schema.Int.check(
  Schema.isBetween({ minimum: 0, maximum: 1000 }, WEIGHTS),
  Schema.makeFilter((weight: number) => weight <= 0 || weight >= 10, WEIGHTS)
)

/**
 * The fields of limits (spec 3): `memory_limit` and `swap` MiB, `disk_space` MB, `cpu_limit` percent of one thread,
 * `io_weight` 10-1000; 0 is no limit.
 */
export const limitFields = {
  memory_limit: bounded(0, 64 * 1024 * 1024, "a number of MiB"),
  swap: Schema.Int.check(
    Schema.isBetween({ minimum: -1, maximum: 64 * 1024 * 1024 }, inUnit("a number of MiB"))
  ),
  io_weight: IoWeight,
  cpu_limit: bounded(0, 1_000_000, "a number in percent of one thread"),
  disk_space: bounded(0, 1_000_000_000, "a number of MB"),
  threads: CpuSet,
  oom_disabled: Schema.Boolean
} as const

export const Limits = Schema.Struct(Struct.map(limitFields, Schema.optionalKey)).annotate({
  identifier: "Limits"
})
export type Limits = typeof Limits.Type

export const withoutNoWeight = ({ io_weight, ...limits }: Limits): Limits =>
  io_weight === undefined || io_weight === 0 ? limits : { ...limits, io_weight }

/** A memory limit from a caller, at least 1 MiB. In files and stored servers, less counts as 1 MiB. */
export const MemoryLimitInput = limitFields.memory_limit.check(
  Schema.makeFilter((limit: number) => limit === 0 || limit >= 1, { expected: "0, or a value of at least 1" })
)

const MIB = 1024 * 1024
const MB = 1_000_000

/** The memory that placement counts for a server without a memory limit (spec 2.4). */
export const UNLIMITED_MEMORY_COUNTS_AS_BYTES = 512 * MIB

/** Returns the memory limit of a server in bytes, at least 1 MiB; 0: no limit. */
export const memoryLimitBytes = ({ memory_limit = 0 }: Limits): number =>
  memory_limit === 0 ? 0 : Math.max(MIB, Math.round(memory_limit * MIB))

/** Returns the memory limit of a server in whole MiB, for its programs; 0: no limit. */
export const memoryLimitMib = (limits: Limits): number => Math.floor(memoryLimitBytes(limits) / MIB)

/** Returns the disk limit of a server in bytes; 0: no limit. */
export const diskLimitBytes = ({ disk_space = 0 }: Limits): number =>
  disk_space === 0 ? 0 : Math.max(1, Math.round(disk_space * MB))

/** Bytes of the disk limit for each file: a smaller file takes as much on most file systems. */
const BYTES_PER_FILE = 4096

/** Returns the most files and folders that a server with a disk limit may have. @param bytes the limit; 0: none */
export const fileLimit = (bytes: number): number => Math.ceil(bytes / BYTES_PER_FILE)

export const committedMemoryBytes = (limits: Limits): number =>
  memoryLimitBytes(limits) || UNLIMITED_MEMORY_COUNTS_AS_BYTES

/** Returns the CPU share that counts for a server, in thousandths of a percent of one thread: at least 1 %; 0: no limit. */
export const committedCpuMillipercent = ({ cpu_limit = 0 }: Limits): number =>
  cpu_limit === 0 ? 0 : Math.max(1000, Math.round(cpu_limit * 1000))

/** Returns what limits commit: bytes, and thousandths of a percent of one thread, so that sums stay exact. */
export const committedOf = (limits: Limits) => ({
  memory_bytes: committedMemoryBytes(limits),
  disk_bytes: diskLimitBytes(limits),
  cpu_millipercent: committedCpuMillipercent(limits)
})
export type Load = ReturnType<typeof committedOf>

/** Returns, for each resource, the limit that counts more in placement and quotas. */
export const largerLimits = (one: Limits, other: Limits): Limits => {
  const larger = (limit: "memory_limit" | "disk_space" | "cpu_limit", of: (limits: Limits) => number) =>
    (of(other) > of(one) ? other : one)[limit] ?? 0
  return {
    memory_limit: larger("memory_limit", committedMemoryBytes),
    disk_space: larger("disk_space", diskLimitBytes),
    cpu_limit: larger("cpu_limit", committedCpuMillipercent)
  }
}

/** Returns a size in words: in MB, and below 0.1 MB in KB. */
export const megabytes = (bytes: number): string =>
  bytes > 0 && bytes < MB / 10 ? `${Math.ceil(bytes / 1000)} KB` : `${(bytes / MB).toFixed(1)} MB`
