/** What daemons and the control plane say to each other (node-protocol.md). Sizes in bytes, times RFC 3339 UTC. */
import { Schema } from "effect"
import { Allocations, NodeAllocation } from "./Allocation.ts"
import { InstallState } from "./InstallState.ts"
import { Capacity, RuntimeKind } from "./Node.ts"
import { NodeCount, NodeKey, NodeShare } from "./NodeText.ts"
import { ServerDefinition } from "./ServerDefinition.ts"
import { Crash } from "./ServerEvent.ts"
import { ServerStatus } from "./ServerStatus.ts"
import { HostInfo } from "./SystemInfo.ts"

/** The full configuration of one server, as its daemon needs it. */
export const ServerSpec = Schema.Struct({
  id: Schema.String,
  definition: ServerDefinition,
  allocations: Allocations,
  /**
   * Sequence of the last report that the control plane has of it: where a node has to make it anew because it has
   * lost it, its reports go on from there and are not taken for repetitions.
   */
  last_sequence: Schema.optionalKey(Schema.Int),
  /**
   * It comes from another node: its files are fetched from the control plane before it is ready. The text names the
   * move; what the node has of the server from another one is thrown away.
   */
  arrival: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "ServerSpec" })
export type ServerSpec = typeof ServerSpec.Type

/** What a daemon has of one server. */
export const DaemonServer = Schema.Struct({
  id: NodeKey,
  status: ServerStatus,
  install: InstallState,
  /**
   * Reports about it that the daemon has yet to send. While there are any, `status` and `install` are not applied:
   * the reports will say it, in order.
   */
  unsent_reports: NodeCount,
  /** It is kept still, so that it can be moved; absent: it is not. */
  held: Schema.optionalKey(Schema.Boolean)
}).annotate({ identifier: "DaemonServer" })
export type DaemonServer = typeof DaemonServer.Type

/** A server that its node keeps still, so that it can be moved. */
export const HeldServer = Schema.Struct({
  ...DaemonServer.fields,
  /** Whether it is up to stay, or would be started again. */
  up: Schema.Boolean
}).annotate({ identifier: "HeldServer" })
export type HeldServer = typeof HeldServer.Type

/** Servers of one node, those that are about to be removed included. */
const MAX_SERVERS = 50_000
const MAX_RUNTIMES = 8

/**
 * A daemon makes itself known. The texts, the capacity and the allocations are checked by `registered`, which names the
 * setting to correct.
 */
export const Registration = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  version: Schema.String,
  boot_id: Schema.String,
  allocations: Schema.Array(NodeAllocation),
  capacity: Capacity,
  runtimes: Schema.Array(RuntimeKind).check(Schema.isMaxLength(MAX_RUNTIMES)),
  system: HostInfo,
  /** Between two of its signs of life. */
  heartbeat_seconds: Schema.optionalKey(NodeShare),
  servers: Schema.Array(DaemonServer).check(Schema.isMaxLength(MAX_SERVERS))
}).annotate({ identifier: "Registration" })
export type Registration = typeof Registration.Type

/** A server that a node has, and that nobody has deleted, but that has no record there. */
export const UnknownServer = Schema.Struct({
  id: Schema.String,
  /** The node that it has a record on; absent: it has none at all. */
  node_id: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "UnknownServer" })
export type UnknownServer = typeof UnknownServer.Type

/**
 * `token`: what the control plane will call the daemon with; `delete`: servers that were deleted; `unknown`: servers that
 * the database knows nothing of, as after a restore: they end, and the files of those that are saved are kept.
 */
export const RegistrationAnswer = Schema.Struct({
  token: Schema.String,
  delete: Schema.Array(Schema.String),
  unknown: Schema.optionalKey(Schema.Array(UnknownServer))
}).annotate({ identifier: "RegistrationAnswer" })
export type RegistrationAnswer = typeof RegistrationAnswer.Type

/** A sign of life, every 10 s. */
export const Heartbeat = Schema.Struct({
  boot_id: NodeKey,
  load: NodeShare,
  memory_used_bytes: NodeCount,
  disk_used_bytes: NodeCount
}).annotate({ identifier: "Heartbeat" })
export type Heartbeat = typeof Heartbeat.Type

/** What a sign of life is answered with, where there is something to say. */
export const HeartbeatAnswer = Schema.Struct({
  /** Where and why the control plane cannot call the daemon. */
  unreachable: Schema.String
}).annotate({ identifier: "HeartbeatAnswer" })
export type HeartbeatAnswer = typeof HeartbeatAnswer.Type

const reportFields = {
  server_id: NodeKey,
  /** Grows with every report of a server, across restarts of its daemon; a repetition has the same number. */
  sequence: NodeCount
}

/** One thing that happened to a server on its node; at least once and in order for each server. */
export const Report = Schema.Union([
  Schema.Struct({
    ...reportFields,
    type: Schema.Literal("status"),
    status: ServerStatus,
    /** Offline on the way to something else (restart, reset): an ephemeral server is not destroyed for it. */
    transient: Schema.Boolean
  }),
  Schema.Struct({ ...reportFields, type: Schema.Literal("install-status"), install: InstallState }),
  Schema.Struct({ ...reportFields, type: Schema.Literal("crash"), crash: Crash })
]).annotate({ identifier: "Report" })
export type Report = typeof Report.Type

/** What the control plane asks of a server's process. */
export const PowerAction = Schema.Literals(["start", "stop", "restart", "kill", "pause", "unpause"])
export type PowerAction = typeof PowerAction.Type

/** State of the installation of a server, and the script that it ran. */
export const InstallReport = Schema.Struct({
  ...InstallState.fields,
  /** Why it does not begin; only while the phase is `pending` and its node cannot be called. */
  waiting_reason: Schema.optionalKey(Schema.String),
  entrypoint: Schema.String,
  script: Schema.String,
  skip_scripts: Schema.Boolean
}).annotate({ identifier: "InstallReport" })
export type InstallReport = typeof InstallReport.Type
