/** A small correct history; each test of an invariant changes it in one place. */
import type { Allocations } from "../../src/contract/domain/Allocation.ts"
import { ServerId } from "../../src/contract/domain/Id.ts"
import type { ServerStatus } from "../../src/contract/domain/ServerStatus.ts"
import { digestOf } from "../controlPlane/servers/support/FakeBackups.ts"
import { kinds, limitsOf, memoryOf } from "./definitions.ts"
import type { ClientRequest, CreateBody, History, Operation, StreamEvent } from "./History.ts"
import {
  definitionOf,
  type JournalRow,
  portsOf,
  type ReplicaSeen,
  type Snapshot,
  type Tables
} from "./Snapshot.ts"

const NODES = ["n0", "n1"] as const
const PORTS = 10
const MEMORY = 4 * 1024 ** 3

interface Made {
  readonly id: string
  readonly key: string
  readonly node_id: string
  readonly ports: ReadonlyArray<number>
  readonly body: CreateBody
  /** Statuses after `installing`. */
  readonly statuses: ReadonlyArray<ServerStatus>
  /** `kept`: its files stay. */
  readonly deleted?: true | "kept"
}

const bodyOf = (blueprint_id: string, key: string, start?: true): CreateBody => ({
  blueprint_id,
  ...(start === undefined ? {} : { start }),
  overrides: { env: { OPERATION: key } }
})

const made: ReadonlyArray<Made> = [
  {
    id: "srv_a",
    key: "key-a",
    node_id: "n0",
    ports: [30_000],
    body: bodyOf("kept", "key-a"),
    statuses: ["offline", "starting", "running"]
  },
  {
    id: "srv_b",
    key: "key-b",
    node_id: "n1",
    ports: [30_010, 30_011],
    body: bodyOf("wide", "key-b"),
    statuses: ["offline"]
  },
  {
    id: "srv_c",
    key: "key-c",
    node_id: "n0",
    ports: [30_001],
    body: bodyOf("kept", "key-c"),
    statuses: ["offline"],
    deleted: true
  },
  {
    id: "srv_d",
    key: "key-d",
    node_id: "n1",
    ports: [30_012],
    body: bodyOf("passing", "key-d", true),
    statuses: ["offline", "starting", "running", "stopping", "offline"],
    deleted: true
  },
  {
    id: "srv_e",
    key: "key-e",
    node_id: "n0",
    ports: [30_002],
    body: bodyOf("kept", "key-e"),
    statuses: ["offline", "starting", "running"],
    deleted: "kept"
  }
]

export const allocationsOf = (ports: ReadonlyArray<number>): Allocations => ({
  force_outgoing_ip: false,
  default: { ip: "127.0.0.1", port: ports[0] ?? 1 },
  alias: "",
  mappings: { "127.0.0.1": [...ports] }
})

const journalOf = ({ body, deleted, id, statuses }: Made): ReadonlyArray<Omit<JournalRow, "cursor">> => {
  const entry = (topic: string, payload: JournalRow["payload"]) => ({
    at: 1,
    topic,
    server_id: id,
    blueprint_id: body.blueprint_id,
    payload
  })
  const [first, ...others] = statuses
  return [
    entry("server:created", null),
    entry("status", "installing"),
    entry("server:install", { phase: "ready" }),
    entry("status", first ?? "offline"),
    ...others.map((status) => entry("status", status)),
    ...(deleted === undefined ? [] : [entry("deleted", null)])
  ]
}

const text = "write 1"

/** A backup of srv_a, which a schedule has made. */
const backup = { id: "backup_a", server_id: "srv_a", name: "plan a" }

const ofOperation = (state: string) => ({ operation: { id: "operation_a", state } })

const worked: ReadonlyArray<Omit<JournalRow, "cursor">> = [
  { topic: "server:operation", payload: ofOperation("queued") },
  { topic: "server:operation", payload: ofOperation("done") },
  { topic: "server:backup", payload: backup }
].map((entry) => ({ at: 1, server_id: "srv_a", blueprint_id: "kept", ...entry }))

const journal: ReadonlyArray<JournalRow> = [
  ...made.slice(0, -1).flatMap(journalOf),
  ...worked,
  ...made.slice(-1).flatMap(journalOf)
].map((entry, index) => ({ cursor: index + 1, ...entry }))

const there = made.filter(({ deleted }) => deleted === undefined)

const sum = (node: string) => {
  const on = there.filter(({ node_id }) => node_id === node)
  return {
    servers: on.length,
    memory_bytes: on.reduce((total, { body }) => total + memoryOf(body.blueprint_id), 0),
    disk_bytes: 0
  }
}

const tables: Tables = {
  servers: there.map(({ body, id, node_id, ports, statuses }) => ({
    id,
    blueprint_id: body.blueprint_id,
    node_id,
    allocations: allocationsOf(ports),
    overrides: body.overrides,
    definition: {
      save: kinds[body.blueprint_id]?.save ?? true,
      limits: limitsOf(body.blueprint_id),
      env: { GENERATION: "0", ...body.overrides.env }
    },
    redefinition: null,
    status: statuses.at(-1) ?? "installing",
    install: { phase: "ready" },
    start_pending: 0,
    last_sequence: 1,
    labels: id === "srv_b" ? { "client-0": "2" } : {},
    expires_at: null
  })),
  ports: there.flatMap(({ id, node_id, ports }) =>
    ports.map((port) => ({ node_id, address: "127.0.0.1", port, server_id: id }))
  ),
  reservations: there.map(({ body, id, node_id }) => ({
    server_id: id,
    node_id,
    memory_bytes: memoryOf(body.blueprint_id),
    disk_bytes: 0
  })),
  journal,
  counters: [{ name: "journal", value: journal.length }],
  idempotency: made.map(({ id, key, node_id }) => ({ key: `env:${key}`, response: { id, node_id } })),
  rollouts: [{ id: "rollout_a", state: "done", total: 2, done: 2 }],
  rollout_servers: [{ rollout_id: "rollout_a", server_id: "srv_b", active: 0 }],
  operations: [{ id: "operation_a", kind: "backup.create", server_id: "srv_a", state: "done", reason: null }],
  backups: [
    {
      ...{ id: backup.id, server_id: "srv_a", node_id: "n0", state: "done", operation_id: "operation_a" },
      figures: { sha256: digestOf(text) }
    }
  ],
  kept_servers: [{ id: "srv_e", node_id: "n0", deleted_at: 1, purge_at: 7_200_001 }],
  schedules: [
    {
      id: "schedule_a",
      settings: { name: backup.name, steps: [{ command: [text] }, { backup: { name: backup.name } }] }
    }
  ],
  schedule_runs: [
    {
      id: "run_a",
      schedule_id: "schedule_a",
      due_at: "2026-01-01T00:00:00.000Z",
      state: "done",
      reason: null
    }
  ],
  schedule_run_servers: [{ run_id: "run_a", server_id: "srv_a", state: "done", step: 2, reason: null }],
  migrations: [],
  pending_deletions: [],
  removals: [],
  suspects: [],
  nodes: NODES.map((id) => ({
    id,
    drained: 0,
    connected: 1,
    capacity: { memory_bytes: MEMORY, disk_bytes: MEMORY }
  }))
}

const replica: ReplicaSeen = {
  text: "",
  deleted: tables.kept_servers.map(({ id }) => id),
  servers: tables.servers.map(({ allocations, blueprint_id, expires_at, id, labels, node_id, status }) => ({
    id,
    labels: labels ?? {},
    expires_at,
    node_id,
    blueprint_id,
    status,
    limits: {},
    allocations
  })),
  nodes: NODES.map((id) => ({
    id,
    drained: false,
    connected: true,
    committed: { memory_bytes: sum(id).memory_bytes, disk_bytes: 0 },
    ports_free: PORTS - tables.ports.filter(({ node_id }) => node_id === id).length,
    servers: sum(id).servers
  }))
}

const end: Snapshot = {
  tables,
  replicas: [replica, replica],
  nodes: NODES.map((id) => ({
    id,
    ports: PORTS,
    kept: tables.kept_servers.filter(({ node_id }) => node_id === id).map((server) => server.id),
    backups: new Map(id === "n0" ? [[backup.id, digestOf(text)]] : []),
    parts: [],
    lines: id === "n0" ? [text] : [],
    instances: tables.servers
      .filter(({ node_id }) => node_id === id)
      .map((server) => ({
        id: server.id,
        status: server.status,
        phase: "ready",
        definition: definitionOf(server.definition),
        ports: portsOf(server.allocations)
      })),
    sentReports: new Map(
      made.filter(({ node_id }) => node_id === id).map((server) => [server.id, server.statuses])
    )
  }))
}

const operation = (n: number, requested: ClientRequest, rest: Partial<Operation> = {}): Operation => ({
  n,
  client: "client 0",
  replica: 0,
  requested,
  sent: n * 100,
  ended: n * 100 + 50,
  status: 200,
  ...rest
})

const operations: ReadonlyArray<Operation> = [
  ...made
    .slice(0, -1)
    .map(({ body, id, key, node_id }, n) =>
      operation(n, { kind: "create", key, body }, { status: 202, id, node_id })
    ),
  operation(4, { kind: "power", server: "srv_a", action: "start" }),
  operation(5, { kind: "delete", server: "srv_c", force: false }),
  operation(
    6,
    { kind: "get-server", server: "srv_c", what: "" },
    { status: 404, detail: "server not found: srv_c" }
  ),
  operation(7, { kind: "get-server", server: "srv_a", what: "/status" }),
  operation(8, { kind: "list", what: "/api/servers?ids_only=true" }, { ids: ["srv_a", "srv_b"] }),
  operation(
    9,
    { kind: "create", key: "key-a", body: bodyOf("kept", "key-a") },
    { status: 202, id: "srv_a", node_id: "n0", replica: 1 }
  ),
  operation(10, { kind: "drain", node: "n1", drained: true, move: false }),
  operation(11, { kind: "list", what: "/healthz" }, { status: undefined, lost: "ECONNREFUSED", replica: 1 }),
  operation(12, { kind: "patch", server: "srv_b", body: { labels: { "client-0": "1" } } }),
  operation(13, { kind: "patch", server: "srv_b", body: { labels: { "client-0": "2" } } }),
  operation(
    20,
    { kind: "create", key: "key-e", body: bodyOf("kept", "key-e") },
    { status: 202, id: "srv_e", node_id: "n0" }
  ),
  operation(19, { kind: "commands", server: "srv_e", text: "2" }, { status: 204 }),
  operation(21, { kind: "delete", server: "srv_e", force: false }),
  operation(22, { kind: "back-up", server: "srv_a" }, { status: 202, id: "operation_a" }),
  operation(14, { kind: "patch", server: "srv_a", body: { expires_in: null } })
]

const received: ReadonlyArray<StreamEvent> = journal
  .filter(({ topic }) => !topic.includes(":"))
  .map(({ cursor, payload, server_id, topic }) => ({
    cursor,
    text: JSON.stringify({ Topic: topic, Data: { server_id, payload } })
  }))

/** Requests with a limited key, and the responses to them. */
const intrusions: ReadonlyArray<Operation> = [
  operation(0, { kind: "power", server: "srv_a", action: "kill" }, { status: 404 }),
  operation(1, { kind: "drain", node: "n1", drained: true, move: true }, { status: 403 }),
  operation(2, { kind: "list", what: "/api/servers?ids_only=true" }, { ids: [] }),
  operation(
    3,
    { kind: "delete-many", servers: ["srv_a"], force: true },
    { outcomes: new Map([["srv_a", { status: 404 }]]) }
  )
]

export const sound: History = {
  operations,
  intrusions,
  disturbances: [{ name: "replica 1 is killed", what: "replica", target: 1, from: 1_090, to: 1_200 }],
  nodeActions: [],
  nodeTasks: (["begun", "done"] as const).map((what, index) => ({
    ...{ at: 2_300 + index, node: "n0", what, operation_id: "operation_a", kind: "create" as const },
    ...{ backup_id: backup.id, server_id: ServerId.make("srv_a") }
  })),
  operationsDone: new Map([["operation_a", 2_400]]),
  readBackups: [{ id: backup.id, status: 200, text }],
  keepSeconds: 7_200,
  subscribers: [
    { name: "sse at replica 0", received },
    { name: "websocket at replica 1", received }
  ],
  end
}
