import { Schema } from "effect"
import { NodeCount, NodeText } from "./NodeText.ts"

/** How a node makes instances from a base: overlay mounts, copies that share blocks, or plain copies. */
export const InstanceStorage = Schema.Literals(["overlay", "reflink", "copy"])
export type InstanceStorage = typeof InstanceStorage.Type

/**
 * The isolation of a plain process from the daemon and from other servers:
 *
 * - `user+namespaces`  a uid of its own, and namespaces that hide the daemon's data and other processes
 * - `user`             a uid of its own
 * - `namespaces`       the uid of the daemon, in such namespaces
 * - `none`             the uid of the daemon
 */
export const ProcessIsolation = Schema.Literals(["user+namespaces", "user", "namespaces", "none"])
export type ProcessIsolation = typeof ProcessIsolation.Type

/** The isolation of servers, per runtime of a node. */
export const Isolation = Schema.Struct({
  process: Schema.optionalKey(ProcessIsolation),
  docker: Schema.optionalKey(Schema.Literal("container"))
}).annotate({ identifier: "Isolation" })
export type Isolation = typeof Isolation.Type

/** Names of limits. */
export const NotEnforced = Schema.optionalKey(Schema.Array(NodeText).check(Schema.isMaxLength(16)))

/** Host information (spec 1.1, `system`). */
export const HostInfo = Schema.Struct({
  /** Go's name: `amd64`, `arm64`. */
  architecture: NodeText,
  cpu_threads: NodeCount,
  memory_bytes: NodeCount,
  kernel_version: NodeText,
  /** Pretty name of the distribution. */
  os: NodeText,
  os_type: NodeText,
  /** Of nodes only (extension). */
  instance_files: Schema.optionalKey(InstanceStorage),
  /** Of nodes only (extension). */
  isolation: Schema.optionalKey(Isolation),
  /** The limits that the node does not enforce on plain processes; absent: it enforces all, or runs none. */
  not_enforced: NotEnforced,
  /** Every uid for servers is in use, so that the node runs no further plain processes; absent: some are free. */
  lacks_uids: Schema.optionalKey(
    Schema.Literal(true).annotate({
      description: "Every uid of MUSTER_PROCESS_UIDS is in use: the node gets no further plain processes."
    })
  )
}).annotate({ identifier: "HostInfo" })
export type HostInfo = typeof HostInfo.Type

/** System information (spec 1.1): version of the service or daemon, and its host. */
export const SystemInfo = Schema.Struct({ version: NodeText, system: HostInfo }).annotate({
  identifier: "SystemInfo"
})
export type SystemInfo = typeof SystemInfo.Type
