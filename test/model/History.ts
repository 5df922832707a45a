/** The history of a run: requests and responses, faults, and the final state. Times in ms since its start. */
import type { PowerAction } from "../../src/contract/domain/NodeMessages.ts"
import type { TaskEvent } from "../controlPlane/servers/support/FakeBackups.ts"
import type { Snapshot } from "./Snapshot.ts"

/** The body of a creation; `env.ATTEMPT` distinguishes the servers of different keys. */
export interface CreateBody {
  readonly blueprint_id: string
  readonly node_id?: string
  readonly start?: boolean
  readonly from_backup?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly overrides: { readonly env: { readonly OPERATION: string } }
}

/** The body of a change; each client writes a label and a variable of its own. */
export interface PatchBody {
  readonly labels?: Readonly<Record<string, string>>
  readonly expires_in?: number | null
  readonly overrides?: {
    readonly env?: Readonly<Record<string, string>>
    readonly limits?: { readonly memory_limit: number }
  }
}

/** The body of a rollout. */
export interface RolloutBody {
  readonly selector: { readonly ids: ReadonlyArray<string> }
  readonly max_parallel: number
  readonly on_failure: "pause" | "continue" | "rollback"
  readonly restart: "now" | "when_stopped"
  readonly start_timeout: number
  readonly canary?: number
}

/** The body of a schedule. `name` is that of the backups of its steps, too. */
export interface ScheduleBody {
  readonly name: string
  readonly server_id: string
  readonly cron: string
  readonly steps: ReadonlyArray<Readonly<Record<string, unknown>>>
  readonly overlap?: "queue"
  readonly on_failure?: "continue"
}

/** The request of a client. */
export type ClientRequest =
  | { readonly kind: "create"; readonly key: string; readonly body: CreateBody }
  /** Another body with the key of an acknowledged creation. */
  | { readonly kind: "create-conflict"; readonly key: string; readonly body: CreateBody }
  | { readonly kind: "delete"; readonly server: string; readonly force: boolean; readonly purge?: true }
  | { readonly kind: "undelete"; readonly server: string }
  | { readonly kind: "back-up"; readonly server: string }
  | {
      readonly kind: "restore"
      readonly server: string
      readonly body: { readonly backup_id: string; readonly safety: boolean; readonly start?: true }
    }
  | { readonly kind: "verify" | "delete-backup" | "read-backup"; readonly backup: string }
  | { readonly kind: "list-backups" | "list-deleted" }
  | { readonly kind: "cancel"; readonly operation: string }
  | { readonly kind: "schedule"; readonly body: ScheduleBody }
  | { readonly kind: "run-schedule" | "pause-schedule" | "delete-schedule"; readonly schedule: string }
  | { readonly kind: "power"; readonly server: string; readonly action: PowerAction }
  | { readonly kind: "reinstall" | "reset"; readonly server: string }
  /** Writes a text into the files of the server. */
  | { readonly kind: "commands"; readonly server: string; readonly text: string }
  | { readonly kind: "patch"; readonly server: string; readonly body: PatchBody }
  | { readonly kind: "upgrade"; readonly server: string }
  | { readonly kind: "roll-out"; readonly body: RolloutBody }
  | {
      readonly kind: "change-rollout"
      readonly rollout: string
      readonly change: "pause" | "resume" | "abort"
    }
  /** Also recorded as one power action of each server. */
  | { readonly kind: "power-many"; readonly servers: ReadonlyArray<string>; readonly action: PowerAction }
  /** Also recorded as one deletion of each server. */
  | { readonly kind: "delete-many"; readonly servers: ReadonlyArray<string>; readonly force: boolean }
  | {
      readonly kind: "drain"
      readonly node: string
      readonly drained: boolean
      readonly move: boolean
      readonly parallel?: number
    }
  | { readonly kind: "reload"; readonly folder: "blueprints" | "software" }
  | { readonly kind: "ticket" }
  | { readonly kind: "list"; readonly what: ListPath }
  | { readonly kind: "get-server"; readonly server: string; readonly what: ServerPath }
  | { readonly kind: "get-node"; readonly node: string }

export type ListPath =
  | "/api/servers?include=status,limits,software"
  | "/api/servers?ids_only=true"
  | "/api/nodes"
  | "/api/blueprints"
  | "/api/system"
  | "/healthz"
export type ServerPath = "" | "/status" | "/install" | "/logs" | "/stats"

/** The outcome of an action on several servers for one of them. */
export interface Outcome {
  readonly status: number
  readonly detail?: string
}

export interface Operation {
  readonly n: number
  readonly client: string
  /** Index of the replica that got the request. */
  readonly replica: number
  readonly requested: ClientRequest
  readonly sent: number
  readonly ended: number
  /** Undefined: no response arrived. */
  readonly status: number | undefined
  /** Why no response arrived. */
  readonly lost?: string
  /** The recorded part of the body: the id of a creation or a rollout, the ids of a list, the `detail` of an error. */
  readonly id?: string
  readonly node_id?: string
  readonly ids?: ReadonlyArray<string>
  /** The ids of a list of backups or deleted servers. */
  readonly others?: ReadonlyArray<string>
  readonly detail?: string
  /** The outcomes of an action on several servers, by id. */
  readonly outcomes?: ReadonlyMap<string, Outcome>
  /** The error says that nothing was changed. */
  readonly unchanged?: true
  /** The defect in the form of the response, for any request. */
  readonly malformed?: string
}

/** A fault, from its injection until it was healed. */
export interface Disturbance {
  readonly name: string
  readonly what: "replica" | "database" | "database-of-replica" | "clock" | "node"
  /** Index of the replica or id of the node; undefined: all. */
  readonly target: number | string | undefined
  readonly from: number
  readonly to: number
}

/** An event of a stream: its cursor and its text as sent. */
export interface StreamEvent {
  readonly cursor: number
  readonly text: string
}

export interface Subscriber {
  readonly name: string
  readonly received: ReadonlyArray<StreamEvent>
}

/** A change made by a node. */
export interface NodeAction {
  readonly at: number
  readonly node: string
  /** The server; undefined: the node lost all its servers. */
  readonly server: string | undefined
}

/** A step of a task of an operation on a node. */
export interface NodeTask extends TaskEvent {
  readonly at: number
  readonly node: string
}

/** The contents of a finished backup, as read at the end. */
export interface ReadBackup {
  readonly id: string
  readonly status: number
  readonly text: string
}

export interface History {
  readonly operations: ReadonlyArray<Operation>
  /** The requests with a key that is limited to other servers. */
  readonly intrusions: ReadonlyArray<Operation>
  readonly disturbances: ReadonlyArray<Disturbance>
  readonly nodeActions: ReadonlyArray<NodeAction>
  readonly nodeTasks: ReadonlyArray<NodeTask>
  /** By id of an operation: when it was first seen as done. */
  readonly operationsDone: ReadonlyMap<string, number>
  /** Some finished backups. */
  readonly readBackups: ReadonlyArray<ReadBackup>
  readonly subscribers: ReadonlyArray<Subscriber>
  /** For how long deleted servers are kept. */
  readonly keepSeconds: number
  /** The state after the run, once it is idle. */
  readonly end: Snapshot
}

/** An invariant of every history; returns its violations with both sides. */
export interface Invariant {
  readonly name: string
  readonly problems: (history: History) => ReadonlyArray<string>
}

export const overlaps = (one: { sent: number; ended: number }, other: { from: number; to: number }) =>
  one.sent <= other.to && other.from <= one.ended
