/** Messages between daemons and the control plane (spec 9). Sizes in bytes, times RFC 3339 UTC. */

import { Schema } from "effect"
import { Allocations, NodeAllocation, Port } from "./Allocation.ts"
import { CrashDetails } from "./CrashRecord.ts"
import { NodeId, ServerId } from "./Id.ts"
import { InstallState } from "./InstallState.ts"
import { Capacity, HostInfo, RuntimeKind } from "./Node.ts"
import { NodeCount, NodeKey, NodeShare, ServerKey } from "./NodeText.ts"
import { Problem } from "./Problem.ts"
import { RestartState, RunReport } from "./RunRule.ts"
import { ServerDefinition } from "./ServerDefinition.ts"
import { Crash } from "./ServerEvent.ts"
import { ServerStatus } from "./ServerStatus.ts"

/** The full configuration of one server, for its daemon. */
export const ServerSpec = Schema.Struct({
  id: ServerId,
  definition: ServerDefinition,
  allocations: Allocations,
  /**
   * The last sequence that the control plane received, so that new reports of a server made again are no repetitions.
   */
  last_sequence: Schema.optionalKey(Schema.Int),
  /** Identifies the migration whose files the daemon fetches from the control plane; files of others are discarded. */
  arrival: Schema.optionalKey(Schema.String),
  /**
   * The time of the definition (ms since the epoch), unless it is the first. A server takes a later one, at once if it
   * is offline, else at its next start.
   */
  defined_at: Schema.optionalKey(Schema.Int),
  reinstall: Schema.optionalKey(Schema.Literal(true)),
  /** Only the kept files of a deleted server make it; without them, the creation is refused. */
  restore: Schema.optionalKey(Schema.Literal(true)),
  /** The time of its creation, RFC 3339: of several servers that wait for their start, the oldest comes first. */
  created_at: Schema.optionalKey(Schema.String),
  /** The caller whose stop holds; see {@link RunReport}. */
  stopped_by: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "ServerSpec" })
export type ServerSpec = typeof ServerSpec.Type

/** An address and port that a program of the node has, so that a server cannot. */
export const TakenPort = Schema.Struct({ ip: NodeKey, port: Port })
export type TakenPort = typeof TakenPort.Type

const MOST_PORTS = 64

/** The ports of one server that are taken; none: the daemon asks for the allocations only. */
export const TakenPorts = Schema.Array(TakenPort).check(Schema.isMaxLength(MOST_PORTS))

export const MOST_CREATIONS = 32

const { definition: _definition, ...ownFields } = ServerSpec.fields

/** Servers to create on one node. Servers with the same definition share it. */
export const Creations = Schema.Struct({
  definitions: Schema.Array(ServerDefinition).check(Schema.isMaxLength(MOST_CREATIONS)),
  servers: Schema.Array(
    Schema.Struct({
      ...ownFields,
      /** The place of its definition in `definitions`, from 0. */
      definition: NodeCount,
      traceparent: Schema.optionalKey(Schema.String)
    })
  ).check(Schema.isMaxLength(MOST_CREATIONS))
}).annotate({ identifier: "Creations" })
export type Creations = typeof Creations.Type

export const DaemonServer = Schema.Struct({
  id: ServerKey,
  status: ServerStatus,
  install: InstallState,
  /**
   * Reports that the daemon has not sent yet. While there are any, `status` and `install` here are not applied: the
   * reports bring them, in order.
   */
  unsent_reports: NodeCount,
  held: Schema.optionalKey(Schema.Boolean),
  /** Absent if no restart is pending or given up. */
  restart: Schema.optionalKey(RestartState),
  /** Absent if the server is up, or if nothing holds or starts it. */
  run: Schema.optionalKey(RunReport),
  /** Why its last start was refused, if so. */
  problem: Schema.optionalKey(Problem),
  /** The time of the newest definition that the daemon has, if it was changed since the creation. */
  defined_at: Schema.optionalKey(NodeCount),
  /** The time of the definition that process and files have. */
  uses: Schema.optionalKey(NodeCount)
}).annotate({ identifier: "DaemonServer" })
export type DaemonServer = typeof DaemonServer.Type

/** The answer to creations: one outcome for each server, in their order, as its own call would have. */
export const CreationsAnswer = Schema.Struct({
  outcomes: Schema.Array(
    Schema.Union([
      Schema.Struct({ server: DaemonServer }),
      Schema.Struct({
        /** 503: the daemon cannot create a server now. */
        status: Schema.Literals([404, 409, 422, 500, 503]),
        detail: Schema.String,
        hint: Schema.String
      })
    ])
  ).check(Schema.isMaxLength(MOST_CREATIONS))
}).annotate({ identifier: "CreationsAnswer" })
export type CreationsAnswer = typeof CreationsAnswer.Type

/** A server that its node holds for a migration. */
export const HeldServer = Schema.Struct({
  ...DaemonServer.fields,
  /** The process is to keep running, or would be started again. */
  up: Schema.Boolean
}).annotate({ identifier: "HeldServer" })
export type HeldServer = typeof HeldServer.Type

/** Includes servers that are being removed. */
const MAX_SERVERS = 50_000
const MAX_RUNTIMES = 8

/** The registration of a daemon; `registered` checks the values and names the setting to correct. */
export const Registration = Schema.Struct({
  id: NodeId,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  version: Schema.String,
  boot_id: Schema.String,
  allocations: Schema.Array(NodeAllocation),
  capacity: Capacity,
  runtimes: Schema.Array(RuntimeKind).check(Schema.isMaxLength(MAX_RUNTIMES)),
  system: HostInfo,
  heartbeat_seconds: Schema.optionalKey(NodeShare),
  servers: Schema.Array(DaemonServer).check(Schema.isMaxLength(MAX_SERVERS)),
  /** Deleted servers whose files the node keeps. */
  kept: Schema.optionalKey(Schema.Array(ServerKey).check(Schema.isMaxLength(MAX_SERVERS)))
}).annotate({ identifier: "Registration" })
export type Registration = typeof Registration.Type

/** A server of a node that was never deleted and has no record on that node. */
export const UnknownServer = Schema.Struct({
  id: ServerId,
  /** The node of its record, which only the service itself names. */
  node_id: Schema.optionalKey(NodeId)
}).annotate({ identifier: "UnknownServer" })
export type UnknownServer = typeof UnknownServer.Type

/**
 * The answer to a registration; `token` is for calls to the daemon. The daemon ends `unknown` servers, as after a
 * restore, but keeps saved files, starts no `stopped` server by itself, and keeps the files of servers to `keep`,
 * which were deleted while it was away.
 */
export const RegistrationAnswer = Schema.Struct({
  token: Schema.String,
  delete: Schema.Array(ServerId),
  unknown: Schema.optionalKey(Schema.Array(UnknownServer)),
  stopped: Schema.optionalKey(Schema.Array(ServerId)),
  keep: Schema.optionalKey(Schema.Array(ServerId))
}).annotate({ identifier: "RegistrationAnswer" })
export type RegistrationAnswer = typeof RegistrationAnswer.Type

export const Heartbeat = Schema.Struct({
  boot_id: NodeKey,
  load: NodeShare,
  memory_used_bytes: NodeCount,
  disk_used_bytes: NodeCount
}).annotate({ identifier: "Heartbeat" })
export type Heartbeat = typeof Heartbeat.Type

/** The answer to a heartbeat, if there is something to report. */
export const HeartbeatAnswer = Schema.Struct({
  /** The address that the control plane calls, and why the call fails. */
  unreachable: Schema.String
}).annotate({ identifier: "HeartbeatAnswer" })

const reportFields = {
  server_id: ServerKey,
  /** Grows with each report, across restarts. A repetition repeats it; 0 marks live progress, which changes nothing. */
  sequence: NodeCount
}

const uses = Schema.optionalKey(NodeCount)

/** One change of a server on its node; delivered at least once, in order for each server. */
export const Report = Schema.Union([
  Schema.Struct({
    ...reportFields,
    type: Schema.Literal("status"),
    status: ServerStatus,
    /** Offline between two states (restart, reset): a server that is not saved is not deleted for it. */
    transient: Schema.Boolean,
    /** Only of `offline`. */
    restart: Schema.optionalKey(RestartState),
    run: Schema.optionalKey(RunReport),
    problem: Schema.optionalKey(Problem),
    uses
  }),
  Schema.Struct({ ...reportFields, type: Schema.Literal("install-status"), install: InstallState, uses }),
  Schema.Struct({
    ...reportFields,
    type: Schema.Literal("crash"),
    crash: Crash,
    details: Schema.optionalKey(CrashDetails)
  })
]).annotate({ identifier: "Report" })
export type Report = typeof Report.Type

export const LIVE = 0

export const MOST_REPORTS = 100

/** Reports of any servers of one node; those of one server are in their order. */
export const Reports = Schema.Struct({
  boot_id: NodeKey,
  reports: Schema.Array(Report).check(Schema.isMaxLength(MOST_REPORTS))
}).annotate({ identifier: "Reports" })

export const ReportsAnswer = Schema.Struct({
  failures: Schema.Array(
    Schema.Struct({
      /** The place of the report in the message, from 0. */
      index: NodeCount,
      /** 404: register again. 503: send the report again. */
      status: Schema.Literals([404, 503]),
      detail: Schema.String
    })
  )
}).annotate({ identifier: "ReportsAnswer" })
export type ReportsAnswer = typeof ReportsAnswer.Type

export const PowerAction = Schema.Literals(["start", "stop", "restart", "kill", "pause", "unpause"])
export type PowerAction = typeof PowerAction.Type

/** State of the installation of a server, and the script that it ran. */
export const InstallReport = Schema.Struct({
  ...InstallState.fields,
  /** Why it does not begin; only while the phase is `pending` and its node cannot be called. */
  waiting_reason: Schema.optionalKey(Schema.String),
  entrypoint: Schema.String,
  script: Schema.optionalKey(Schema.String),
  skip_scripts: Schema.Boolean
}).annotate({ identifier: "InstallReport" })
export type InstallReport = typeof InstallReport.Type
