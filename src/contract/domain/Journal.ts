import { Schema } from "effect"
import { Allocations } from "./Allocation.ts"
import { Backup } from "./Backup.ts"
import { CrashSummary } from "./CrashRecord.ts"
import { Migration } from "./Drain.ts"
import { NodeId, ServerId } from "./Id.ts"
import { InstallState } from "./InstallState.ts"
import type { Labels } from "./Labels.ts"
import { OperationChange } from "./Operation.ts"
import { Problem } from "./Problem.ts"
import { RestartState, RunState } from "./RunRule.ts"
import { ScheduleNews } from "./Schedule.ts"
import { Crash } from "./ServerEvent.ts"
import { ServerStatus } from "./ServerStatus.ts"
import { WebhookId } from "./Webhook.ts"

const serverChange = <const T extends string, A, I>(topic: T, payload: Schema.Codec<A, I>) =>
  Schema.Struct({ topic: Schema.Literal(topic), server_id: ServerId, payload })

const serverChanges = [
  serverChange("status", ServerStatus),
  serverChange("crash", Crash),
  serverChange("deleted", Schema.Null),
  serverChange("server:created", Schema.Null),
  serverChange("server:crash-recorded", CrashSummary),
  serverChange("server:changed", Schema.Null),
  /** The server expires soon, at this time (RFC 3339); also the opt-in topic `expiring` of streams. */
  serverChange("server:expiring", Schema.String),
  serverChange("server:install", InstallState),
  serverChange("server:start-pending", Schema.Boolean),
  /** Whether the `offline` of the server is between two states: restart, reset. */
  serverChange("server:transient", Schema.Boolean),
  serverChange("server:problem", Schema.NullOr(Problem)),
  /** An operation has begun, has changed its state, or is to be cancelled; also the opt-in topic `operation`. */
  serverChange("server:operation", OperationChange),
  /** A run of a schedule was missed, or has failed for the server; also the opt-in topic `schedule`. */
  serverChange("server:schedule", ScheduleNews),
  /** A backup of the server has begun, or has changed; also the opt-in topic `backup`. */
  serverChange("server:backup", Backup),
  serverChange("server:restart", Schema.NullOr(RestartState)),
  serverChange("server:run", Schema.NullOr(RunState)),
  serverChange("server:placed", Schema.Struct({ node_id: NodeId, allocations: Allocations })),
  serverChange("server:move", Schema.NullOr(Migration)),
  /** The node with this id has files of the server that it must delete. */
  serverChange("server:left", NodeId),
  /** The node may have lost the server: the leader verifies it. */
  serverChange("server:suspect", Schema.Null)
] as const

const otherChange = <const T extends string, const F extends Schema.Struct.Fields>(topic: T, fields: F) =>
  Schema.Struct({ topic: Schema.Literal(topic), ...fields })

const NodeRecordChangeKind = Schema.Literals([
  "connected",
  "disconnected",
  "expelled",
  "lost",
  "given-up",
  "drained",
  "removed"
])
export type NodeRecordChangeKind = typeof NodeRecordChangeKind.Type

const nodeChanges = [
  otherChange("node:changed", { node_id: NodeId, kind: NodeRecordChangeKind }),
  otherChange("node:reach", { node_id: NodeId }),
  otherChange("node:evacuation", { node_id: NodeId })
] as const

/** A committed change of one subject: a server, a node, the keys, a ticket, a webhook, the definitions, a rollout or a schedule. */
export const Change = Schema.Union([
  ...serverChanges,
  ...nodeChanges,
  otherChange("key:changed", {}),
  /** A ticket, named by its SHA-256 in hex, has opened its stream again; an earlier connection of the stream ends. */
  otherChange("ticket:reopened", { ticket: Schema.String, times_opened: Schema.Int }),
  otherChange("webhook:changed", { webhook_id: WebhookId }),
  /** A replica, `origin`, has read a folder of definitions again; each other replica reads its own. */
  otherChange("definitions:reloaded", {
    folder: Schema.Literals(["blueprints", "software"]),
    origin: Schema.String
  }),
  /** A rollout was created, has changed its state, or one of its servers is done or has failed. */
  otherChange("rollout:changed", { rollout_id: Schema.String }),
  /** A schedule or one of its runs was created, changed or deleted. */
  otherChange("schedule:changed", { schedule_id: Schema.String, run_id: Schema.NullOr(Schema.String) }),
  /** A change that only a newer version of Muster knows; during a rolling upgrade it writes to the same journal. */
  otherChange("unknown:change", {})
])
export type Change = typeof Change.Type

/** A committed change of a server. Topics without a `:` are public events (spec 5.1), the others internal or opt-in. */
export type ServerChange = (typeof serverChanges)[number]["Type"]

export type NodeRecordChange = (typeof nodeChanges)[number]["Type"]

/** The facts of a server by which streams filter its events. */
export interface ChangedServer {
  readonly blueprint_id: string
  readonly labels?: Labels
}

/** A {@link Change} with its place in the one total order: gapless, in commit order. */
export interface JournalEntry {
  readonly cursor: number
  /** Commit time, milliseconds since the epoch. */
  readonly at: number
  /** Blueprint of the server, so that streams can filter by it after the record is deleted. */
  readonly blueprint_id: string
  /** Labels of the server at the time of the change; absent: none. */
  readonly labels?: Labels
  readonly change: Change
}

export const serverOf = (change: Change): ServerId | undefined =>
  "server_id" in change ? change.server_id : undefined

/** A change that is published as an event (spec 5.1). */
export type PublicChange = Extract<ServerChange, { readonly topic: "status" | "crash" | "deleted" }>

export const isPublic = (change: Change): change is PublicChange => !change.topic.includes(":")

/** Whether a change is published to streams that name its topic. */
export const isOptInChange = ({ topic }: Change): boolean =>
  topic === "server:install" ||
  topic === "server:expiring" ||
  topic === "server:problem" ||
  topic === "server:operation" ||
  topic === "server:schedule" ||
  topic === "server:backup"

/** Oldest and newest cursor that the journal keeps; `newest` is 0 before the first change. */
export interface JournalBounds {
  /** Cursor of the oldest kept entry; `newest + 1` when none is kept. */
  readonly oldest: number
  readonly newest: number
}
