import type { Allocations } from "./Allocation.ts"
import type { CrashSummary } from "./CrashRecord.ts"
import type { NodeId, ServerId } from "./Id.ts"
import type { InstallState } from "./InstallState.ts"
import type { Labels } from "./Labels.ts"
import type { Migration } from "./Migration.ts"
import type { Problem } from "./Problem.ts"
import type { RestartState } from "./Restart.ts"
import type { RunState } from "./Run.ts"
import type { Crash } from "./ServerEvent.ts"
import type { ServerStatus } from "./ServerStatus.ts"
import type { WebhookId } from "./Webhook.ts"

/**
 * A committed change of a server. Topics without a `:` are public events (spec 5.1). The others are internal;
 * `server:install`, `server:expiring` and `server:problem` are also opt-in topics of streams.
 */
export type ServerChange = { readonly server_id: ServerId } & (
  | { readonly topic: "status"; readonly payload: ServerStatus }
  | { readonly topic: "crash"; readonly payload: Crash }
  | { readonly topic: "deleted"; readonly payload: null }
  | { readonly topic: "server:created"; readonly payload: null }
  | { readonly topic: "server:crash-recorded"; readonly payload: CrashSummary }
  /** A caller has changed the settings of the server: its row has them. */
  | { readonly topic: "server:changed"; readonly payload: null }
  /** The server expires soon, at this time (RFC 3339); also the opt-in topic `expiring` of streams. */
  | { readonly topic: "server:expiring"; readonly payload: string }
  | { readonly topic: "server:install"; readonly payload: InstallState }
  | { readonly topic: "server:start-pending"; readonly payload: boolean }
  /** Whether the `offline` of the server is between two states: restart, reset. */
  | { readonly topic: "server:transient"; readonly payload: boolean }
  | { readonly topic: "server:problem"; readonly payload: Problem | null }
  | { readonly topic: "server:restart"; readonly payload: RestartState | null }
  | { readonly topic: "server:run"; readonly payload: RunState | null }
  | {
      readonly topic: "server:placed"
      readonly payload: { readonly node_id: NodeId; readonly allocations: Allocations }
    }
  | { readonly topic: "server:move"; readonly payload: Migration | null }
  /** The node with this id has files of the server that it must delete. */
  | { readonly topic: "server:left"; readonly payload: NodeId }
  /** The node may have lost the server: the leader verifies it. */
  | { readonly topic: "server:suspect"; readonly payload: null }
)

export type NodeRecordChangeKind =
  | "connected"
  | "disconnected"
  | "expelled"
  | "lost"
  | "given-up"
  | "drained"
  | "removed"

/** A committed change of a node. */
export type NodeRecordChange = { readonly node_id: NodeId } & (
  | { readonly topic: "node:changed"; readonly kind: NodeRecordChangeKind }
  /** The node became reachable or unreachable. */
  | { readonly topic: "node:reach" }
  /** The drain of the node began or ended. */
  | { readonly topic: "node:evacuation" }
)

/** A key was created or revoked. */
export interface KeysChange {
  readonly topic: "key:changed"
}

/** A ticket has opened its stream again; an earlier connection of the stream ends. */
export interface TicketChange {
  readonly topic: "ticket:reopened"
  /** SHA-256 of the ticket, in hex. */
  readonly ticket: string
  readonly times_opened: number
}

/** A caller has changed a webhook. */
export interface WebhookChange {
  readonly topic: "webhook:changed"
  readonly webhook_id: WebhookId
}

/** A replica has read a folder of definitions again; each other replica reads its own. */
export interface DefinitionsChange {
  readonly topic: "definitions:reloaded"
  readonly folder: "blueprints" | "software"
  /** The replica. */
  readonly origin: string
}

/** A rollout was created, has changed its state, or one of its servers is done or has failed. */
export interface RolloutChange {
  readonly topic: "rollout:changed"
  readonly rollout_id: string
}

/** A change that only a newer version of Muster knows; during a rolling upgrade it writes to the same journal. */
export interface UnknownChange {
  readonly topic: "unknown:change"
}

/** A committed change of one subject: a server, a node, the keys, a ticket, a webhook, the definitions or a rollout. */
export type Change =
  | ServerChange
  | NodeRecordChange
  | KeysChange
  | TicketChange
  | WebhookChange
  | DefinitionsChange
  | RolloutChange
  | UnknownChange

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

/** Returns the id of the server that a change is about. */
export const serverOf = (change: Change): ServerId | undefined =>
  "server_id" in change ? change.server_id : undefined

/** A change that is published as an event (spec 5.1). */
export type PublicChange = Extract<ServerChange, { readonly topic: "status" | "crash" | "deleted" }>

export const isPublic = (change: Change): change is PublicChange => !change.topic.includes(":")

/** Whether a change is published to streams that name its topic. */
export const isOptInChange = ({ topic }: Change): boolean =>
  topic === "server:install" || topic === "server:expiring" || topic === "server:problem"

/** Oldest and newest cursor that the journal keeps; `newest` is 0 before the first change. */
export interface JournalBounds {
  /** Cursor of the oldest kept entry; `newest + 1` when none is kept. */
  readonly oldest: number
  readonly newest: number
}
