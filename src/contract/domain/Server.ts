import { Schema } from "effect"
import { Allocations, ChangedPort } from "./Allocation.ts"
import { CrashSummary } from "./CrashRecord.ts"
import { NodeId, ServerId } from "./Id.ts"
import { InstallPhase, InstallState } from "./InstallState.ts"
import { Labels } from "./Labels.ts"
import { Limits, largerLimits } from "./Limits.ts"
import { NodeCount, NodeShare, NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import { Overrides } from "./Overrides.ts"
import { Problem, ShownProblem } from "./Problem.ts"
import { RestartState, RunState, RunView } from "./RunRule.ts"
import { ServerDefinition } from "./ServerDefinition.ts"
import { ServerStatus } from "./ServerStatus.ts"

const MOST_WARNINGS = 16

/** What an operator should know of a running server: `limits_not_enforced`, `listens_on_all_addresses`. */
export const ServerWarning = Schema.Struct({ code: NodeText, detail: NodeText }).annotate({
  identifier: "ServerWarning"
})
export type ServerWarning = typeof ServerWarning.Type

/**
 * Live figures of one server (spec 3.7). Percentages are of one thread, `uptime` is in ms, unknown figures are null.
 */
export const ServerStats = Schema.Struct({
  memory_bytes: Schema.NullOr(NodeCount),
  /** 0: no limit. */
  memory_limit_bytes: NodeCount,
  cpu_absolute: Schema.NullOr(NodeShare),
  cpu_absolute_limit: NodeShare,
  network: Schema.Struct({ rx_bytes: Schema.NullOr(NodeCount), tx_bytes: Schema.NullOr(NodeCount) }),
  uptime: Schema.NullOr(NodeCount),
  state: ServerStatus,
  disk_bytes: Schema.NullOr(NodeCount),
  disk_max: NodeCount,
  /** Disk that this instance alone takes, beyond shared files. */
  overlay_bytes: Schema.NullOr(NodeCount),
  warnings: Schema.optionalKey(Schema.Array(ServerWarning).check(Schema.isMaxLength(MOST_WARNINGS)))
}).annotate({ identifier: "ServerStats" })
export type ServerStats = typeof ServerStats.Type

/** Figures of servers, by id; null: the node has not given any. */
export const StatsById = Schema.Record(Schema.String, Schema.NullOr(ServerStats)).annotate({
  identifier: "StatsById"
})
export type StatsById = typeof StatsById.Type

export type FiguresById = ReadonlyMap<ServerId, ServerStats>

const NamedPort = Schema.Struct({ ip: Schema.String, port: Schema.Int }).annotate({ identifier: "NamedPort" })

/** Server summary (spec 3.1); the fields from `status` on only with `include=` (spec 3.6). */
export const Server = Schema.Struct({
  id: ServerId,
  blueprint_id: Schema.String,
  node_name: Schema.String,
  node_id: NodeId,
  allocations: Allocations,
  overrides: Schema.optionalKey(Schema.toType(Overrides)),
  status: Schema.optionalKey(ServerStatus),
  limits: Schema.optionalKey(Limits),
  software: Schema.optionalKey(Schema.String),
  version: Schema.optionalKey(Schema.String),
  image: Schema.optionalKey(Schema.String),
  labels: Schema.optionalKey(Labels),
  name: Schema.optionalKey(Schema.NullOr(Schema.String)),
  install: Schema.optionalKey(
    Schema.Struct({ phase: InstallPhase, failure_reason: Schema.optionalKey(NodeText) })
  ),
  last_crash: Schema.optionalKey(Schema.NullOr(CrashSummary)),
  ports: Schema.optionalKey(Schema.Record(Schema.String, NamedPort)),
  /** RFC 3339; null: the server does not expire. */
  expires_at: Schema.optionalKey(Schema.NullOr(TimeText)),
  restart: Schema.optionalKey(Schema.NullOr(RestartState)),
  run: Schema.optionalKey(RunView),
  problem: Schema.optionalKey(Schema.NullOr(ShownProblem)),
  /** `outdated`: today's blueprint and software resolve to another definition. */
  definition: Schema.optionalKey(
    Schema.Struct({ revision: Schema.String, outdated: Schema.Boolean }).annotate({
      description: "`outdated`: today's blueprint and software resolve to another definition."
    })
  ),
  /** Paths of the changes that a server which is up gets at its next start; with `definition`. */
  pending: Schema.optionalKey(
    Schema.Array(Schema.String).annotate({
      description: "Paths of the changes that a server which is up gets at its next start."
    })
  ),
  save: Schema.optionalKey(
    Schema.Boolean.annotate({ description: "False: the server is deleted once it has run and stopped." })
  ),
  updated_at: Schema.optionalKey(TimeText),
  created_at: Schema.optionalKey(TimeText),
  stats: Schema.optionalKey(Schema.NullOr(ServerStats)),
  deleted_at: Schema.optionalKey(
    TimeText.annotate({ description: "Of a deleted server: the time of its deletion." })
  ),
  purge_at: Schema.optionalKey(
    TimeText.annotate({ description: "Of a deleted server: the time at which its files are removed." })
  ),
  ports_changed: Schema.optionalKey(
    Schema.Array(ChangedPort).annotate({
      description: "Of an undelete: the ports that other servers have by now, and those in their place."
    })
  )
}).annotate({ identifier: "Server" })
export type Server = typeof Server.Type

/** The last change of a server's definition (spec 3.12). */
export const Redefinition = Schema.Struct({
  /** Milliseconds since the epoch; grows with each change. */
  defined_at: Schema.Int,
  /** Whether the node has accepted the definition. */
  delivered: Schema.Boolean,
  /** The earlier definition that its process and files still have, if any. */
  used: Schema.optionalKey(ServerDefinition),
  /**
   * Definitions between `used` and the present one, oldest first; the node may already have given one to the server.
   */
  earlier: Schema.optionalKey(
    Schema.Array(Schema.Struct({ defined_at: Schema.Int, definition: ServerDefinition }))
  ),
  /** Whether the change includes a reinstallation that the node has not accepted. */
  reinstall: Schema.optionalKey(Schema.Literal(true))
})
export type Redefinition = typeof Redefinition.Type

/** Names of `include=`, in the order of the documents. */
export const includable = [
  "status",
  "limits",
  "software",
  "labels",
  "name",
  "install",
  "last_crash",
  "ports",
  "expires_at",
  "updated_at",
  "restart",
  "run",
  "stats",
  "definition",
  "save",
  "problem"
] as const
export type Includable = (typeof includable)[number]

/** The record of a server in the control plane. */
export const ServerRecord = Schema.Struct({
  id: ServerId,
  blueprint_id: Schema.String,
  node_id: NodeId,
  allocations: Allocations,
  overrides: Schema.optionalKey(Schema.toType(Overrides)),
  definition: ServerDefinition,
  redefinition: Schema.optionalKey(Redefinition),
  status: ServerStatus,
  install: InstallState,
  /** Start once installed: set at creation, cleared when the start has been accepted. */
  start_pending: Schema.Boolean,
  /** Counts only while the server is offline. */
  restart: Schema.optionalKey(Schema.NullOr(RestartState)),
  run: Schema.optionalKey(Schema.NullOr(RunState)),
  problem: Schema.optionalKey(Schema.NullOr(Problem)),
  /** Sequence of the last report that was applied; an equal or lower one is a repetition. */
  last_sequence: Schema.Int,
  /** RFC 3339, UTC, milliseconds. */
  created_at: TimeText,
  updated_at: TimeText,
  name: Schema.optionalKey(Schema.String),
  labels: Labels,
  /** The time at which the server is deleted, if any. */
  expires_at: Schema.optionalKey(TimeText),
  /** The id of the key that has created the server, if a key did. */
  created_by: Schema.optionalKey(Schema.String),
  /** The `traceparent` of the creation, which the installation continues, if any. */
  trace: Schema.optionalKey(Schema.String)
})
export type ServerRecord = typeof ServerRecord.Type

interface HasLimits {
  readonly limits: Limits
}

export interface ReservedFields {
  readonly definition: HasLimits
  readonly redefinition?: {
    readonly used?: HasLimits
    readonly earlier?: ReadonlyArray<{ readonly definition: HasLimits }>
  }
}

/** Returns the limits that are reserved for a server: also those that its process may still have (spec 3.12). */
export const reservedLimits = ({ definition, redefinition: { earlier = [], used } = {} }: ReservedFields) =>
  used === undefined
    ? definition.limits
    : [used, ...earlier.map((it) => it.definition)].reduce(
        (largest, { limits }) => largerLimits(largest, limits),
        definition.limits
      )

/** @param now milliseconds since the epoch */
export const hasExpired = ({ expires_at }: Pick<ServerRecord, "expires_at">, now: number): boolean =>
  expires_at !== undefined && Date.parse(expires_at) <= now
