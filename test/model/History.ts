/** What happened in a run: what was asked and answered, what was broken, what was seen in the end. Times in ms since its start. */
import type { PowerAction } from "../../src/domain/NodeMessages.ts"
import type { Snapshot } from "./Snapshot.ts"

/** Body of a creation; `env.ATTEMPT` tells the servers of different keys apart. */
export interface CreateBody {
  readonly blueprint_id: string
  readonly node_id?: string
  readonly start?: boolean
  readonly overrides: { readonly env: { readonly OPERATION: string } }
}

/** What a client asks for. */
export type Asked =
  | { readonly kind: "create"; readonly key: string; readonly body: CreateBody }
  /** Another body with the key of an acknowledged creation. */
  | { readonly kind: "create-otherwise"; readonly key: string; readonly body: CreateBody }
  | { readonly kind: "delete"; readonly server: string; readonly force: boolean }
  | { readonly kind: "power"; readonly server: string; readonly action: PowerAction }
  | { readonly kind: "reinstall" | "reset" | "commands"; readonly server: string }
  | { readonly kind: "drain"; readonly node: string; readonly drained: boolean; readonly move: boolean }
  | { readonly kind: "reload"; readonly folder: "blueprints" | "software" }
  | { readonly kind: "ticket" }
  | { readonly kind: "list"; readonly what: ListPath }
  | { readonly kind: "look"; readonly server: string; readonly what: LookPath }
  | { readonly kind: "look-at-node"; readonly node: string }

export type ListPath =
  | "/api/servers?include=status,limits,software"
  | "/api/servers?ids_only=true"
  | "/api/nodes"
  | "/api/blueprints"
  | "/api/system"
  | "/healthz"
export type LookPath = "" | "/status" | "/install" | "/logs" | "/stats"

export interface Operation {
  readonly n: number
  readonly client: string
  /** Number of the replica that was asked. */
  readonly replica: number
  readonly asked: Asked
  readonly sent: number
  readonly ended: number
  /** Undefined: no answer came. */
  readonly status: number | undefined
  /** Why no answer came. */
  readonly lost?: string
  /** What is kept of the body: an id of a creation, ids of a list, `detail` of an error. */
  readonly id?: string
  readonly node_id?: string
  readonly ids?: ReadonlyArray<string>
  readonly detail?: string
  /** The error says that nothing was done. */
  readonly unchanged?: true
  /** What is wrong with the answer itself, whatever it answers. */
  readonly malformed?: string
}

/** Something that was broken, from when until it was whole again. */
export interface Disturbance {
  readonly name: string
  readonly what: "replica" | "database" | "database-of-replica" | "clock" | "node"
  /** Number of the replica, id of the node; undefined: all. */
  readonly target: number | string | undefined
  readonly from: number
  readonly to: number
}

/** A message of the streams: its cursor and its text as it was sent. */
export interface Told {
  readonly cursor: number
  readonly text: string
}

export interface Subscriber {
  readonly name: string
  readonly told: ReadonlyArray<Told>
}

/** What nodes did by themselves. */
export interface NodeDeed {
  readonly at: number
  readonly node: string
  /** The server; undefined: the node lost everything that it had. */
  readonly server: string | undefined
}

export interface History {
  readonly operations: ReadonlyArray<Operation>
  readonly disturbances: ReadonlyArray<Disturbance>
  readonly deeds: ReadonlyArray<NodeDeed>
  readonly subscribers: ReadonlyArray<Subscriber>
  /** What everything was when it had come to rest. */
  readonly end: Snapshot
}

/** Something that has to be true of every history; names what is not, each with both sides. */
export interface Invariant {
  readonly name: string
  readonly problems: (history: History) => ReadonlyArray<string>
}

export const overlaps = (one: { sent: number; ended: number }, other: { from: number; to: number }) =>
  one.sent <= other.to && other.from <= one.ended
