import { Schema } from "effect"
import { Allocations } from "./Allocation.ts"
import { NodeId, ServerId } from "./Id.ts"
import { InstallState } from "./InstallState.ts"

/**
 * While `arriving`, the old node keeps the files and the new one fetches them; while `returning`, the record is on the
 * old node, which must release the server. A `failed` server stays until the next drain.
 */
export const MigrationPhase = Schema.Literals(["leaving", "arriving", "returning", "failed"])
export type MigrationPhase = typeof MigrationPhase.Type

/** The former place of a server, to return to. */
export const Origin = Schema.Struct({
  allocations: Allocations,
  install: InstallState,
  last_sequence: Schema.Int
})
export type Origin = typeof Origin.Type

export const Migration = Schema.Struct({
  server_id: ServerId,
  from_node: NodeId,
  phase: MigrationPhase,
  /** Identifies the migration, so that the new node does not take files of an earlier one. */
  arrival: Schema.String,
  /** Whether the server is to be started at its destination; null until its node was asked. */
  was_up: Schema.NullOr(Schema.Boolean),
  reason: Schema.NullOr(Schema.String),
  origin: Schema.NullOr(Origin),
  /** The time of the line of the drain, RFC 3339 UTC, unless none was sent. */
  notified_at: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "Move" })
export type Migration = typeof Migration.Type

/** Whether a migration is under way: the server cannot be started, reset or reinstalled. */
export const isUnderway = (move: Migration | undefined): move is Migration =>
  move !== undefined && move.phase !== "failed"

/** A server that must leave a node, as the detail of the node shows it. */
export const MigratingServer = Schema.Struct({
  server_id: ServerId,
  state: Schema.Literals(["waiting", "stopping", "transferring", "returning", "blocked"]),
  to: Schema.optionalKey(NodeId),
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "MovingServer" })
export type MigratingServer = typeof MigratingServer.Type

/** The remaining work until a drained node has no saved servers. */
export const MigrationProgress = Schema.Struct({
  /** Saved servers with their record or their files on the node. */
  left: Schema.Int,
  /** Servers that are not saved: they are deleted when they stop. */
  running_out: Schema.Int,
  /** Servers that leave at a time, if the caller has chosen that. */
  parallel: Schema.optionalKey(Schema.Int),
  /** When the remaining servers are stopped (RFC 3339), if ever. */
  deadline_at: Schema.optionalKey(Schema.String),
  /** The first 1,000 of the remaining servers, by id. */
  servers: Schema.Array(MigratingServer)
}).annotate({ identifier: "MoveProgress" })
export type MigrationProgress = typeof MigrationProgress.Type
