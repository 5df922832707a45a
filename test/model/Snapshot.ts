/** The state of an idle run: the tables at one moment, each replica, each node. */
import { Schema } from "effect"
import { Allocations } from "../../src/contract/domain/Allocation.ts"
import { BackupState } from "../../src/contract/domain/Backup.ts"
import { Limits } from "../../src/contract/domain/Limits.ts"
import { OperationState } from "../../src/contract/domain/Operation.ts"
import { RolloutState } from "../../src/contract/domain/Rollout.ts"
import { ServerStatus } from "../../src/contract/domain/ServerStatus.ts"

const text = Schema.String
const whole = Schema.Int
const json = <S extends Schema.Constraint>(schema: S) => Schema.fromJsonString(schema)

/** The part of a definition that clients change. */
const Definition = Schema.Struct({
  save: Schema.Boolean,
  limits: Limits,
  env: Schema.Record(Schema.String, Schema.String)
})

const ServerRow = Schema.Struct({
  id: text,
  blueprint_id: text,
  node_id: text,
  allocations: json(Allocations),
  overrides: Schema.NullOr(
    json(
      Schema.Struct({
        env: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
        limits: Schema.optionalKey(Limits)
      })
    )
  ),
  definition: json(Definition),
  redefinition: Schema.NullOr(
    json(
      Schema.Struct({
        delivered: Schema.Boolean,
        used: Schema.optionalKey(Definition),
        earlier: Schema.optionalKey(Schema.Array(Schema.Struct({ definition: Definition })))
      })
    )
  ),
  status: ServerStatus,
  install: json(Schema.Struct({ phase: text })),
  start_pending: whole,
  last_sequence: whole,
  labels: Schema.NullOr(json(Schema.Record(Schema.String, Schema.String))),
  expires_at: Schema.NullOr(text)
})

const JournalRow = Schema.Struct({
  cursor: whole,
  at: whole,
  topic: text,
  server_id: text,
  blueprint_id: text,
  payload: json(Schema.Json)
})
export type JournalRow = typeof JournalRow.Type

/** The tables, read in one statement. */
export const Tables = Schema.Struct({
  servers: Schema.Array(ServerRow),
  ports: Schema.Array(Schema.Struct({ node_id: text, address: text, port: whole, server_id: text })),
  reservations: Schema.Array(
    Schema.Struct({ server_id: text, node_id: text, memory_bytes: whole, disk_bytes: whole })
  ),
  journal: Schema.Array(JournalRow),
  counters: Schema.Array(Schema.Struct({ name: text, value: whole })),
  /** `key` begins with the name of the API key. */
  idempotency: Schema.Array(
    Schema.Struct({ key: text, response: json(Schema.Struct({ id: text, node_id: text })) })
  ),
  rollouts: Schema.Array(Schema.Struct({ id: text, state: RolloutState, total: whole, done: whole })),
  rollout_servers: Schema.Array(Schema.Struct({ rollout_id: text, server_id: text, active: whole })),
  operations: Schema.Array(
    Schema.Struct({
      ...{ id: text, kind: text, server_id: text, state: OperationState },
      reason: Schema.NullOr(text)
    })
  ),
  backups: Schema.Array(
    Schema.Struct({
      ...{ id: text, server_id: text, node_id: text, state: BackupState, operation_id: text },
      figures: Schema.NullOr(json(Schema.Struct({ sha256: text })))
    })
  ),
  kept_servers: Schema.Array(Schema.Struct({ id: text, node_id: text, deleted_at: whole, purge_at: whole })),
  schedules: Schema.Array(
    Schema.Struct({
      id: text,
      settings: json(Schema.Struct({ name: text, steps: Schema.Array(Schema.Json) }))
    })
  ),
  schedule_runs: Schema.Array(
    Schema.Struct({
      ...{ id: text, schedule_id: text, due_at: text, state: text },
      reason: Schema.NullOr(text)
    })
  ),
  schedule_run_servers: Schema.Array(
    Schema.Struct({
      ...{ run_id: text, server_id: text, state: text, step: whole },
      reason: Schema.NullOr(text)
    })
  ),
  migrations: Schema.Array(Schema.Struct({ server_id: text, from_node: text, phase: text })),
  pending_deletions: Schema.Array(Schema.Struct({ server_id: text, node_id: text })),
  removals: Schema.Array(Schema.Struct({ server_id: text })),
  suspects: Schema.Array(Schema.Struct({ server_id: text })),
  nodes: Schema.Array(
    Schema.Struct({
      id: text,
      drained: whole,
      connected: whole,
      capacity: json(Schema.Struct({ memory_bytes: whole, disk_bytes: whole }))
    })
  )
})
export type Tables = typeof Tables.Type

/** The columns of each table, and the order in which rows are compared. */
export const tableColumns: Readonly<Record<keyof Tables, { columns: string; order: string }>> = {
  servers: {
    columns:
      "id, blueprint_id, node_id, allocations, overrides, (SELECT definition FROM definitions WHERE hash = definition_hash) AS definition, redefinition, status, install, start_pending, last_sequence, labels, expires_at",
    order: "id"
  },
  ports: { columns: "node_id, address, port, server_id", order: "node_id, address, port" },
  reservations: { columns: "server_id, node_id, memory_bytes, disk_bytes", order: "server_id, node_id" },
  journal: { columns: "cursor, at, topic, server_id, blueprint_id, payload", order: "cursor" },
  counters: { columns: "name, value", order: "name" },
  idempotency: { columns: "key, response", order: "key" },
  rollouts: { columns: "id, state, total, done", order: "id" },
  rollout_servers: { columns: "rollout_id, server_id, active", order: "rollout_id, server_id" },
  operations: { columns: "id, kind, server_id, state, reason", order: "id" },
  backups: { columns: "id, server_id, node_id, state, operation_id, figures", order: "id" },
  kept_servers: { columns: "id, node_id, deleted_at, purge_at", order: "id" },
  schedules: { columns: "id, settings", order: "id" },
  schedule_runs: { columns: "id, schedule_id, due_at, state, reason", order: "id" },
  schedule_run_servers: { columns: "run_id, server_id, state, step, reason", order: "run_id, server_id" },
  migrations: { columns: "server_id, from_node, phase", order: "server_id" },
  pending_deletions: { columns: "server_id, node_id", order: "server_id, node_id" },
  removals: { columns: "server_id", order: "server_id" },
  suspects: { columns: "server_id", order: "server_id" },
  nodes: { columns: "id, drained, connected, capacity", order: "id" }
}

/** A server in the list with {@link INCLUDE}. */
export const Listed = Schema.Struct({
  id: text,
  node_id: text,
  blueprint_id: text,
  status: ServerStatus,
  limits: Limits,
  allocations: Allocations,
  labels: Schema.Record(Schema.String, Schema.String),
  expires_at: Schema.NullOr(text)
})
export const INCLUDE = "include=status,limits,software,labels,expires_at"
export type Listed = typeof Listed.Type

/** A node as GET /api/nodes/:node returns it. */
export const NodeSeen = Schema.Struct({
  id: text,
  drained: Schema.Boolean,
  connected: Schema.Boolean,
  committed: Schema.Struct({ memory_bytes: whole, disk_bytes: whole }),
  ports_free: whole,
  servers: whole
})
export type NodeSeen = typeof NodeSeen.Type

/** The state as one replica shows it. */
export interface ReplicaSeen {
  readonly servers: ReadonlyArray<Listed>
  /** The same list, as sent. */
  readonly text: string
  readonly nodes: ReadonlyArray<NodeSeen>
  /** The ids of deleted servers that are kept. */
  readonly deleted: ReadonlyArray<string>
}

/** An instance on a node. */
export interface InstanceSeen {
  readonly id: string
  readonly status: ServerStatus
  readonly phase: string
  /** The newest definition that it has, in short form. */
  readonly definition: string
  readonly ports: ReadonlyArray<string>
}

export interface NodeHas {
  readonly id: string
  /** Number of ports that the node offers. */
  readonly ports: number
  readonly instances: ReadonlyArray<InstanceSeen>
  /** Deleted servers whose files it keeps. */
  readonly kept: ReadonlyArray<string>
  /** The SHA-256 of each finished backup. */
  readonly backups: ReadonlyMap<string, string>
  /** Backups without a manifest. */
  readonly parts: ReadonlyArray<string>
  /** The lines that the consoles of its servers got. */
  readonly lines: ReadonlyArray<string>
  /** All reports for a server, in order. */
  readonly sentReports: ReadonlyMap<string, ReadonlyArray<string>>
}

export interface Snapshot {
  readonly tables: Tables
  readonly replicas: ReadonlyArray<ReplicaSeen>
  readonly nodes: ReadonlyArray<NodeHas>
}

/** The short form of a definition: its limits and variables. */
export const definitionOf = ({ env, limits }: Pick<typeof Definition.Type, "env" | "limits">): string =>
  JSON.stringify([limits.memory_limit, Object.entries(env).toSorted()])

/** Each allocated port as `address:port`. */
export const portsOf = ({ mappings }: Allocations): ReadonlyArray<string> =>
  Object.entries(mappings).flatMap(([address, ports]) => ports.map((port) => `${address}:${port}`))

/** The key as the client sent it. */
export const sentKey = (key: string): string => key.slice(key.indexOf(":") + 1)
