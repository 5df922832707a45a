/** The drain of a node whose saved servers migrate to other nodes. */
import { Schema } from "effect"
import { Allocations } from "./Allocation.ts"
import { ConsoleLine } from "./ConsoleLine.ts"
import { NodeId, ServerId } from "./Id.ts"
import { InstallState } from "./InstallState.ts"

/**
 * While `arriving`, the old node keeps the files and the new one fetches them; while `returning`, the record is on the
 * old node, which must release the server. A `failed` server stays until the next drain.
 */
export const MigrationPhase = Schema.Literals(["leaving", "arriving", "returning", "failed"])

/** The former place of a server, to return to. */
export const Origin = Schema.Struct({
  allocations: Allocations,
  install: InstallState,
  last_sequence: Schema.Int
})

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

const WEEK = 7 * 24 * 60 * 60

export const drainOptions = {
  parallel: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 50 })),
  /** Seconds until the servers that remain leave at once, and those that cannot leave are stopped. */
  deadline: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: WEEK })),
  notify: ConsoleLine.check(Schema.isNonEmpty()),
  /** Seconds between the line and the stop. */
  notify_seconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3600 }))
} as const

export const NOTIFY_SECONDS = 10

export const noticeMillis = (seconds: number | null | undefined): number => (seconds ?? NOTIFY_SECONDS) * 1000

export const Drain = Schema.Struct({
  node_id: NodeId,
  /** RFC 3339 UTC; servers that were created later stay. */
  asked_at: Schema.String,
  parallel: Schema.NullOr(Schema.Int),
  /** RFC 3339 UTC. */
  deadline_at: Schema.NullOr(Schema.String),
  notify: Schema.NullOr(Schema.String),
  notify_seconds: Schema.NullOr(Schema.Int),
  /** Whether the servers that the deadline stops have got the line. */
  notified: Schema.Boolean
})
export type Drain = typeof Drain.Type

export type DrainChoices = Partial<Omit<Drain, "node_id" | "asked_at" | "notified">>

/** Bounds the servers of a plan, and the servers of each of its reasons. */
export const MOST_PLANNED = 1000

export const DrainPlan = Schema.Struct({
  /** The first 1,000 of the servers that would migrate, in their order, with their destinations. */
  migrations: Schema.Array(Schema.Struct({ server_id: ServerId, to: NodeId, to_name: Schema.String })),
  migrations_total: Schema.Int,
  /** The servers that would stay, by the reason. */
  blocked: Schema.Array(
    Schema.Struct({
      reason: Schema.String,
      total: Schema.Int,
      server_ids: Schema.Array(ServerId)
    })
  ),
  /** Servers that are not saved: they stay until they stop. */
  running_out: Schema.Int
}).annotate({ identifier: "DrainPlan" })
export type DrainPlan = typeof DrainPlan.Type
