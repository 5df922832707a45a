import { Schema } from "effect"

/** Host information (contract 2.2, `system`). */
export const HostInfo = Schema.Struct({
  /** Go's name: `amd64`, `arm64`. */
  architecture: Schema.String,
  cpu_threads: Schema.Int,
  memory_bytes: Schema.Int,
  kernel_version: Schema.String,
  /** Pretty name of the distribution. */
  os: Schema.String,
  os_type: Schema.String
}).annotate({ identifier: "HostInfo" })
export type HostInfo = typeof HostInfo.Type

/** System information (contract 2.2): version of the service or daemon, and its host. */
export const SystemInfo = Schema.Struct({ version: Schema.String, system: HostInfo }).annotate({
  identifier: "SystemInfo"
})
export type SystemInfo = typeof SystemInfo.Type
