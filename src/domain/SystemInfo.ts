import { Schema } from "effect"

/** How a node makes instances of a base folder: overlay mounts, copies that share blocks, or plain copies. */
export const InstanceStorage = Schema.Literals(["overlay", "reflink", "copy"])
export type InstanceStorage = typeof InstanceStorage.Type

/** Host information (contract 2.2, `system`). */
export const HostInfo = Schema.Struct({
  /** Go's name: `amd64`, `arm64`. */
  architecture: Schema.String,
  cpu_threads: Schema.Int,
  memory_bytes: Schema.Int,
  kernel_version: Schema.String,
  /** Pretty name of the distribution. */
  os: Schema.String,
  os_type: Schema.String,
  /** Of nodes only (extension). */
  instance_files: Schema.optionalKey(InstanceStorage)
}).annotate({ identifier: "HostInfo" })
export type HostInfo = typeof HostInfo.Type

/** System information (contract 2.2): version of the service or daemon, and its host. */
export const SystemInfo = Schema.Struct({ version: Schema.String, system: HostInfo }).annotate({
  identifier: "SystemInfo"
})
export type SystemInfo = typeof SystemInfo.Type
