import { Schema } from "effect"
import { Allocations } from "./Allocation.ts"
import { InstallState } from "./InstallState.ts"

/**
 * How far the move of a saved server is:
 * - `leaving`: it is on its node still, and is being stopped
 * - `arriving`: its record is on the new node, which fetches the files; the old one keeps them until they are there
 * - `returning`: its record is on its old node (again), which is told that it may be used again
 * - `failed`: it stays where it is until somebody asks anew
 */
export const MigrationPhase = Schema.Literals(["leaving", "arriving", "returning", "failed"])
export type MigrationPhase = typeof MigrationPhase.Type

/** Where a server was, so that it can be put back there. */
export const Origin = Schema.Struct({
  allocations: Allocations,
  install: InstallState,
  last_sequence: Schema.Int
})
export type Origin = typeof Origin.Type

/** The move of one server. */
export const Migration = Schema.Struct({
  server_id: Schema.String,
  /** The node that it leaves. */
  from_node: Schema.String,
  phase: MigrationPhase,
  /** Names this move, so that the new node does not take an older copy for the one that it is to fetch. */
  arrival: Schema.String,
  /** Whether it is to be started where it ends up; null until its node was asked. */
  was_up: Schema.NullOr(Schema.Boolean),
  /** Why it did not succeed. */
  reason: Schema.NullOr(Schema.String),
  /** From the change of nodes on. */
  origin: Schema.NullOr(Origin)
}).annotate({ identifier: "Move" })
export type Migration = typeof Migration.Type

/** Whether a move is going on: nobody else may start, reset or reinstall the server. */
export const isUnderway = (move: Migration | undefined): move is Migration =>
  move !== undefined && move.phase !== "failed"

/** A server that is to leave a node, as the node's detail shows it. */
export const MigratingServer = Schema.Struct({
  server_id: Schema.String,
  state: Schema.Literals(["waiting", "stopping", "transferring", "returning", "blocked"]),
  /** Where it goes; only while it is being transferred. */
  to: Schema.optionalKey(Schema.String),
  /** Why it waits or cannot be moved. */
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "MovingServer" })
export type MigratingServer = typeof MigratingServer.Type

/** What is left to do until a node that is being emptied has no saved server any more. */
export const MigrationProgress = Schema.Struct({
  /** Saved servers that are on the node, or whose files are. */
  left: Schema.Int,
  /** Servers that are not saved: they run out. */
  running_out: Schema.Int,
  /** The first 1,000 of those that are left, by id. */
  servers: Schema.Array(MigratingServer)
}).annotate({ identifier: "MoveProgress" })
export type MigrationProgress = typeof MigrationProgress.Type
