import { assert, describe, it } from "@effect/vitest"
import type { History, NodeTask, Operation } from "./History.ts"
import { answers, found, gone } from "./invariants/answers.ts"
import { failures, leftovers, once, stored } from "./invariants/backups.ts"
import { expiry, lastPatch, overridden, rollouts } from "./invariants/changes.ts"
import { acknowledged, deletions, idempotency, unchanged, whole } from "./invariants/creations.ts"
import { drains } from "./invariants/drains.ts"
import { invariants } from "./invariants/index.ts"
import { order, state, transitions } from "./invariants/journal.ts"
import { keptUntil, keptWhole, returns } from "./invariants/kept.ts"
import { lastPowerAction, started } from "./invariants/lastPowerAction.ts"
import { limits } from "./invariants/limits.ts"
import { agreement, reports } from "./invariants/nodes.ts"
import { capacity, ports } from "./invariants/reservations.ts"
import { runs } from "./invariants/schedules.ts"
import { streams } from "./invariants/streams.ts"
import type { NodeHas, ReplicaSeen, Snapshot, Tables } from "./Snapshot.ts"
import { allocationsOf, sound } from "./soundHistory.ts"

const withEnd = (change: Partial<Snapshot>): History => ({ ...sound, end: { ...sound.end, ...change } })

const withTables = (change: (tables: Tables) => Partial<Tables>): History =>
  withEnd({ tables: { ...sound.end.tables, ...change(sound.end.tables) } })

/** A history whose second replica differs. */
const withReplica = (change: (replica: ReplicaSeen) => Partial<ReplicaSeen>): History =>
  withEnd({
    replicas: sound.end.replicas.map((replica, index) =>
      index === 1 ? { ...replica, ...change(replica) } : replica
    )
  })

const withNode = (id: string, change: (node: NodeHas) => Partial<NodeHas>): History =>
  withEnd({ nodes: sound.end.nodes.map((node) => (node.id === id ? { ...node, ...change(node) } : node)) })

/** A history with one changed operation. */
const withOperation = (n: number, change: Partial<Operation>): History => ({
  ...sound,
  operations: sound.operations.map((operation) =>
    operation.n === n ? { ...operation, ...change } : operation
  )
})

/** A history with one changed request of a limited key. */
const withIntrusion = (n: number, change: Partial<Operation>): History => ({
  ...sound,
  intrusions: sound.intrusions.map((operation) =>
    operation.n === n ? { ...operation, ...change } : operation
  )
})

/** A history with one more step of the task of a backup. */
const withTask = (change: Partial<NodeTask>): History => ({
  ...sound,
  nodeTasks: [...sound.nodeTasks, ...sound.nodeTasks.slice(-1).map((task) => ({ ...task, ...change }))]
})

const withMore = (operation: Partial<Operation> & Pick<Operation, "requested">): History => ({
  ...sound,
  operations: [
    ...sound.operations,
    { n: 50, client: "client 1", replica: 0, sent: 5_000, ended: 5_050, status: 200, ...operation }
  ]
})

const create = (key: string, blueprint_id = "kept") =>
  ({
    kind: "create",
    key,
    body: { blueprint_id, overrides: { env: { OPERATION: key } } }
  }) as const

/** Each history has one violation, which only one invariant reports. */
const broken: ReadonlyArray<readonly [(typeof invariants)[number], string, History, RegExp]> = [
  [
    answers,
    "a defect",
    withOperation(7, { status: 500, detail: "internal server error" }),
    /operation 7 .* 500/
  ],
  [answers, "a creation that is refused", withOperation(0, { status: 409 }), /operation 0 .* 409/],
  [
    answers,
    "an error with another form",
    withOperation(6, { malformed: "no X-Request-Id" }),
    /no X-Request-Id/
  ],
  [
    answers,
    "a running replica that does not respond",
    withOperation(11, { replica: 0 }),
    /the replica was running: operation 11/
  ],
  [
    answers,
    "a healed replica that does not respond",
    withOperation(11, { sent: 1_300, ended: 1_301 }),
    /the replica was running: operation 11/
  ],
  [
    answers,
    "a key with another body that is accepted",
    withMore({ requested: { ...create("key-a"), kind: "create-conflict" }, status: 202 }),
    /create-conflict.*202/
  ],
  [
    found,
    "a server that is not found at another replica",
    withMore({
      requested: { kind: "get-server", server: "srv_a", what: "" },
      status: 404,
      replica: 1,
      sent: 7_000,
      ended: 7_001
    }),
    /srv_a was acknowledged by operation 0/
  ],
  [
    found,
    "a server that is not listed where it was acknowledged",
    withOperation(8, { ids: ["srv_b"] }),
    /srv_a was acknowledged .* is not listed/
  ],
  [
    gone,
    "a server that is found after it was deleted",
    withMore({ requested: { kind: "get-server", server: "srv_c", what: "" } }),
    /operation 5.*operation 50/
  ],
  [
    gone,
    "a server that is listed after it was deleted",
    withOperation(8, { ids: ["srv_a", "srv_b", "srv_c"] }),
    /operation 5.*listed by operation 8/
  ],
  [
    idempotency,
    "a key that creates a second server",
    withOperation(9, { id: "srv_z" }),
    /key-a created srv_a, and now srv_z/
  ],
  [
    idempotency,
    "a server of two keys",
    withMore({ requested: create("key-z"), status: 202, id: "srv_a", node_id: "n0" }),
    /key-z returns srv_a, created with key-a/
  ],
  [
    idempotency,
    "a response that is not stored",
    withTables(({ idempotency: kept }) => ({ idempotency: kept.slice(1) })),
    /the stored response has undefined/
  ],
  [
    whole,
    "a creation without a stored response",
    withTables(({ idempotency: kept }) => ({ idempotency: kept.slice(1) })),
    /srv_a was created without a stored response/
  ],
  [
    whole,
    "a stored response without a creation",
    withTables(({ idempotency: kept }) => ({
      idempotency: [...kept, { key: "env:key-a", response: { id: "srv_z", node_id: "n0" } }]
    })),
    /srv_z was not created/
  ],
  [
    whole,
    "a server without a request",
    {
      ...sound,
      operations: sound.operations.filter(
        ({ requested }) => !("key" in requested) || requested.key !== "key-b"
      )
    },
    /key-b was not requested/
  ],
  [
    whole,
    "a server with a part of its ports",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_b" ? { ...server, allocations: allocationsOf([30_010]) } : server
      )
    })),
    /srv_b of wide has 1 ports, not 2/
  ],
  [
    whole,
    "a server with the overrides of another",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_a" ? { ...server, overrides: { env: { OPERATION: "key-b" } } } : server
      )
    })),
    /srv_a of key-a has the overrides of key-b/
  ],
  [
    unchanged,
    "a server whose creation was certainly refused",
    {
      ...sound,
      operations: sound.operations.map((operation) =>
        "key" in operation.requested && operation.requested.key === "key-b"
          ? { ...operation, status: 503, detail: "the database cannot be reached", unchanged: true }
          : operation
      )
    },
    /key-b created srv_b; operation 1: the database cannot be reached/
  ],
  [
    acknowledged,
    "an acknowledged server that was never created",
    withMore({ requested: create("key-z"), status: 202, id: "srv_z", node_id: "n0" }),
    /srv_z .* was never created/
  ],
  [
    acknowledged,
    "an acknowledged server without a record",
    withTables(({ servers }) => ({ servers: servers.slice(1) })),
    /srv_a .* has no record, and was not deleted/
  ],
  [
    acknowledged,
    "an acknowledged server that one replica does not list",
    withReplica(({ servers }) => ({ servers: servers.slice(1) })),
    /srv_a .* replica 1 does not list it/
  ],
  [
    acknowledged,
    "an acknowledged server that was deleted without a request",
    { ...sound, operations: sound.operations.filter(({ n }) => n !== 5) },
    /srv_c .* without a request/
  ],
  [
    deletions,
    "a saved server that was deleted without a request",
    { ...sound, operations: sound.operations.filter(({ n }) => n !== 5) },
    /srv_c was deleted without a request/
  ],
  [
    deletions,
    "a server that is not saved and was deleted before its run",
    withTables(({ journal }) => ({
      journal: journal.filter(
        ({ payload, server_id }) => server_id !== "srv_d" || payload === null || payload === "installing"
      )
    })),
    /srv_d was deleted without a request/
  ],
  [
    deletions,
    "an acknowledged deletion that was not carried out",
    withMore({ requested: { kind: "delete", server: "srv_b", force: true } }),
    /srv_b was deleted \(operation 50\), and has a record/
  ],
  [
    deletions,
    "a deleted server that its node has",
    withNode("n0", ({ instances }) => ({
      instances: [...instances, { id: "srv_c", status: "offline", phase: "ready", definition: "", ports: [] }]
    })),
    /srv_c was deleted \(operation 5\), and n0 has it/
  ],
  [
    order,
    "a journal with a gap",
    withTables(({ journal }) => ({ journal: journal.filter(({ cursor }) => cursor !== 4) })),
    /entry 5 is number 4/
  ],
  [
    order,
    "a journal that ends before its counter",
    withTables(({ journal }) => ({ journal: journal.slice(0, -1) })),
    /the counter is 34, the last cursor 33/
  ],
  [
    order,
    "an entry after the deletion",
    withTables(({ journal }) => ({
      journal: journal
        .map((entry) => (entry.topic === "deleted" ? { ...entry, topic: "status" } : entry))
        .map((entry, index, all) =>
          index === all.length - 2 ? { ...entry, topic: "deleted", payload: null } : entry
        )
    })),
    /comes after its deletion/
  ],
  [
    order,
    "an entry before the creation",
    withTables(({ journal }) => ({
      journal: journal.map((entry) => (entry.cursor === 1 ? { ...entry, topic: "status" } : entry))
    })),
    /entry 1 .* comes before its creation/
  ],
  [
    state,
    "a record with another status than its last event",
    withTables(({ servers }) => ({
      servers: servers.map((server) => (server.id === "srv_a" ? { ...server, status: "offline" } : server))
    })),
    /status of srv_a: offline, by the journal running/
  ],
  [
    state,
    "a replica with another status",
    withReplica(({ servers }) => ({
      servers: servers.map((server) => (server.id === "srv_a" ? { ...server, status: "starting" } : server))
    })),
    /status of srv_a at replica 1: starting, by the journal running/
  ],
  [
    state,
    "a replica that lists a deleted server",
    withReplica(({ servers }) => ({
      servers: [...servers, ...servers.slice(0, 1).map((server) => ({ ...server, id: "srv_c" }))]
    })),
    /list of replica 1/
  ],
  [
    state,
    "a record on another node",
    withTables(({ servers }) => ({
      servers: servers.map((server) => (server.id === "srv_a" ? { ...server, node_id: "n1" } : server))
    })),
    /node of srv_a: n1, by the journal n0/
  ],
  [
    state,
    "a record with a pending installation",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_a" ? { ...server, install: { phase: "pending" } } : server
      )
    })),
    /install of srv_a: pending, by the journal ready/
  ],
  [
    transitions,
    "a status change that is not in the table",
    withTables(({ journal }) => ({
      journal: journal.map((entry) =>
        entry.payload === "starting" ? { ...entry, payload: "paused" } : entry
      )
    })),
    /srv_a goes from offline to paused/
  ],
  [
    transitions,
    "a status that is published twice",
    withTables(({ journal }) => ({
      journal: journal.map((entry) =>
        entry.payload === "starting" ? { ...entry, payload: "offline" } : entry
      )
    })),
    /srv_a is published as offline twice/
  ],
  [
    transitions,
    "an installation without a request",
    withTables(({ journal }) => ({
      journal: journal.map((entry) =>
        entry.payload === "running" ? { ...entry, payload: "installing" } : entry
      )
    })),
    /srv_a goes from starting to installing/
  ],
  [
    ports,
    "two servers with one port",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_b"
          ? { ...server, node_id: "n0", allocations: allocationsOf([30_000, 30_011]) }
          : server
      )
    })),
    /n0 127\.0\.0\.1:30000 is held twice/
  ],
  [
    ports,
    "a reserved port that no server holds",
    withTables(({ ports: rows }) => ({
      ports: [...rows, { node_id: "n1", address: "127.0.0.1", port: 30_012, server_id: "srv_d" }]
    })),
    /30012 of srv_d is reserved, and not held/
  ],
  [
    ports,
    "a port that is held and not reserved",
    withTables(({ ports: rows }) => ({ ports: rows.slice(1) })),
    /30000 of srv_a is not reserved/
  ],
  [
    ports,
    "a replica with another count of free ports",
    withReplica(({ nodes }) => ({ nodes: nodes.map((node) => ({ ...node, ports_free: 10 })) })),
    /replica 1: n0 has 10 free ports of 10, 1 are reserved/
  ],
  [
    ports,
    "a node that gives one port to two servers",
    withNode("n1", ({ instances }) => ({ instances: [...instances, ...instances] })),
    /n1 has two servers with 127\.0\.0\.1:30010/
  ],
  [
    ports,
    "a node that gives a server another port",
    withNode("n0", ({ instances }) => ({
      instances: instances.map((instance) => ({ ...instance, ports: ["127.0.0.1:30009"] }))
    })),
    /30009 of srv_a, which it does not hold/
  ],
  [
    ports,
    "a server without its default port",
    withTables(({ servers }) => ({
      servers: servers.map((server) => ({
        ...server,
        allocations: { ...server.allocations, default: { ip: "127.0.0.1", port: 9 } }
      }))
    })),
    /srv_a does not hold its default 127\.0\.0\.1:9/
  ],
  [
    capacity,
    "a wrong reservation",
    withTables(({ reservations }) => ({
      reservations: reservations.map((row) => ({ ...row, memory_bytes: row.memory_bytes + 1 }))
    })),
    /not held: srv_a on n0: \d+/
  ],
  [
    capacity,
    "a reservation on another node than the server's",
    withTables(({ reservations }) => ({
      reservations: [...reservations, ...reservations.slice(0, 1).map((row) => ({ ...row, node_id: "n1" }))]
    })),
    /held: srv_a on n1: \d+; it is not in the records/
  ],
  [
    capacity,
    "a server without a reservation",
    withTables(({ reservations }) => ({ reservations: reservations.slice(1) })),
    /not held: srv_a on n0/
  ],
  [
    capacity,
    "a node over its capacity",
    withTables(({ nodes }) => ({
      nodes: nodes.map((node) => ({ ...node, capacity: { memory_bytes: 1, disk_bytes: 1 } }))
    })),
    /n0: \d+ of 1 are committed/
  ],
  [
    capacity,
    "a replica with another sum",
    withReplica(({ nodes }) => ({ nodes: nodes.map((node) => ({ ...node, servers: 7 })) })),
    /replica 1: n0 has 7 servers/
  ],
  [
    streams,
    "a subscriber that missed an event",
    {
      ...sound,
      subscribers: sound.subscribers.map(({ name, received }) => ({
        name,
        received: received.toSpliced(2, 1)
      }))
    },
    /sse at replica 0, message 2/
  ],
  [
    streams,
    "a subscriber that received an event twice",
    {
      ...sound,
      subscribers: sound.subscribers.map(({ name, received }) => ({
        name,
        received: [...received, ...received.slice(-1)]
      }))
    },
    /websocket at replica 1, message \d+: .*; the journal: none/
  ],
  [
    streams,
    "a subscriber that received another event",
    {
      ...sound,
      subscribers: sound.subscribers.map(({ name, received }) => ({
        name,
        received: received.map((one, index) =>
          index === 0 ? { ...one, text: one.text.replace("srv_a", "srv_b") } : one
        )
      }))
    },
    /message 0: .*srv_b.*; the journal: .*srv_a/
  ],
  [
    agreement,
    "a node without one of its servers",
    withNode("n0", () => ({ instances: [] })),
    /n0 does not have srv_a/
  ],
  [
    agreement,
    "a node with a server of another node",
    withNode("n0", ({ instances }) => ({
      instances: [...instances, { id: "srv_b", status: "offline", phase: "ready", definition: "", ports: [] }]
    })),
    /n0 has srv_b, whose record is on n1/
  ],
  [
    agreement,
    "a node with another status of a server",
    withNode("n0", ({ instances }) => ({
      instances: instances.map((instance) => ({ ...instance, status: "offline" }))
    })),
    /srv_a is offline, ready on n0; its record: running, ready/
  ],
  [
    reports,
    "a reported change that was not published",
    withNode("n0", () => ({
      sentReports: new Map([["srv_a", ["offline", "starting", "running", "paused", "running"]]])
    })),
    /srv_a: published .*; n0 reported .*paused/
  ],
  [
    reports,
    "a published change that was not reported",
    withNode("n0", () => ({ sentReports: new Map([["srv_a", ["offline"]]]) })),
    /srv_a: published installing,offline,starting,running; n0 reported installing,offline/
  ],
  [
    limits,
    "a limited key that kills a server of others",
    withIntrusion(0, { status: 200 }),
    /request 0 .*"kill".*: 200/
  ],
  [
    limits,
    "a limited key that lists a server of others",
    withIntrusion(2, { ids: ["srv_a"] }),
    /request 2 .*: 200 {2}srv_a/
  ],
  [
    limits,
    "a limited key that deletes a server of others among several",
    withIntrusion(3, { outcomes: new Map([["srv_a", { status: 200 }]]) }),
    /request 3 .*"delete-many"/
  ],
  [
    drains,
    "a server placed on a drained node",
    withMore({ requested: create("key-z"), status: 202, id: "srv_z", node_id: "n1" }),
    /srv_z .* was placed on n1, drained since 1050 ms/
  ],
  [
    lastPowerAction,
    "a started server that does not run",
    withOperation(4, { requested: { kind: "power", server: "srv_a", action: "stop" } }),
    /srv_a is running after stop \(operation 4\)/
  ],
  [
    started,
    "a server to be started that does not run",
    withOperation(1, {
      requested: { ...create("key-b", "wide"), body: { ...create("key-b", "wide").body, start: true } }
    }),
    /srv_b is offline, and was to be started/
  ],
  [
    lastPatch,
    "a label with an earlier value",
    withOperation(13, {
      requested: { kind: "patch", server: "srv_b", body: { labels: { "client-0": "3" } } }
    }),
    /label client-0 of srv_b is 2; operation 13 made it 3/
  ],
  [
    lastPatch,
    "a label of a change that was certainly refused",
    withOperation(13, { status: 503, unchanged: true }),
    /label client-0 of srv_b is 2; operation 12 made it 1/
  ],
  [
    lastPatch,
    "a label that was lost",
    withTables(({ servers }) => ({ servers: servers.map((server) => ({ ...server, labels: {} })) })),
    /label client-0 of srv_b is undefined/
  ],
  [
    expiry,
    "an expiry that was removed",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_a" ? { ...server, expires_at: "2026-01-01T00:00:00.000Z" } : server
      )
    })),
    /srv_a expires at 2026.*operation 14/
  ],
  [
    overridden,
    "a definition without an override",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_a"
          ? { ...server, overrides: { ...server.overrides, limits: { memory_limit: 96 } } }
          : server
      )
    })),
    /srv_a overrides its memory with 96; its definition: 64/
  ],
  [
    overridden,
    "a definition with another variable",
    withTables(({ servers }) => ({
      servers: servers.map((server) =>
        server.id === "srv_a" ? { ...server, definition: { ...server.definition, env: {} } } : server
      )
    })),
    /srv_a overrides OPERATION with key-a/
  ],
  [
    rollouts,
    "a rollout that is done with a part of its servers",
    withTables(({ rollouts: all }) => ({ rollouts: all.map((one) => ({ ...one, done: 1 })) })),
    /rollout_a is done with 1 of 2/
  ],
  [
    rollouts,
    "a rollout that is over and holds a server",
    withTables(({ rollout_servers: all }) => ({
      rollout_servers: all.map((one) => ({ ...one, active: 1 }))
    })),
    /rollout_a holds srv_b/
  ],
  [
    agreement,
    "a node with an earlier definition",
    withNode("n0", ({ instances }) => ({
      instances: instances.map((instance) => ({ ...instance, definition: "earlier" }))
    })),
    /srv_a has earlier on n0/
  ],
  [
    state,
    "a replica with other labels",
    withReplica(({ servers }) => ({
      servers: servers.map((server) => ({ ...server, labels: { other: "1" } }))
    })),
    /labels of srv_a at replica 1/
  ],
  [
    stored,
    "a finished backup that its node does not have",
    withNode("n0", () => ({ backups: new Map() })),
    /backup_a is done with \w+; n0 has no such backup/
  ],
  [
    stored,
    "a finished backup that was made again later",
    withNode("n0", () => ({ backups: new Map([["backup_a", "another"]]) })),
    /backup_a is done with \w+; n0 has another/
  ],
  [
    stored,
    "a finished backup that a replica cannot read",
    { ...sound, readBackups: [{ id: "backup_a", status: 502, text: "" }] },
    /backup_a is done, and reading it returns 502/
  ],
  [
    stored,
    "a finished backup with other contents",
    { ...sound, readBackups: [{ id: "backup_a", status: 200, text: "write 2" }] },
    /backup_a is done, and reading it returns 200: write 2/
  ],
  [
    leftovers,
    "a backup without a record",
    withTables(() => ({ backups: [] })),
    /n0 has backup_a, which has no record/
  ],
  [
    leftovers,
    "parts without a record",
    withNode("n1", () => ({ parts: ["backup_z"] })),
    /n1 has backup_z, which has no record/
  ],
  [
    once,
    "a task that is begun after its operation was done",
    withTask({ at: 2_500, what: "begun" }),
    /n0 began operation_a \(create of srv_a\) at 2500 ms, and it was done at 2400 ms/
  ],
  [
    once,
    "a task that is done twice",
    withTask({ at: 2_302, what: "done", node: "n1" }),
    /n1 began operation_a .*, and it was done at 2301 ms on n0/
  ],
  [
    once,
    "an operation that ends twice",
    withTables(({ journal }) => ({
      journal: journal.map((entry) =>
        entry.topic === "server:operation"
          ? { ...entry, payload: { operation: { id: "operation_a", state: "done" } } }
          : entry
      )
    })),
    /operation_a becomes done after its end/
  ],
  [
    failures,
    "a damaged backup",
    withTables(({ operations }) => ({
      operations: operations.map((one) => ({ ...one, state: "failed", reason: "the archive is damaged" }))
    })),
    /operation_a \(backup.create\) has failed: the archive is damaged/
  ],
  [
    keptWhole,
    "a kept server without files",
    withNode("n0", () => ({ kept: [] })),
    /srv_e is kept on record, and n0 has no files of it/
  ],
  [
    keptWhole,
    "files that are kept without a record",
    withNode("n1", () => ({ kept: ["srv_c"] })),
    /n1 keeps srv_c, which is not on record/
  ],
  [
    keptWhole,
    "a kept server that exists",
    withTables(({ kept_servers, servers }) => ({
      servers: [...servers, ...servers.slice(0, 1).map((server) => ({ ...server, id: "srv_e" }))],
      kept_servers
    })),
    /srv_e is kept, and has a record/
  ],
  [
    keptWhole,
    "a kept server that a replica does not list",
    withReplica(() => ({ deleted: [] })),
    /replica 1 lists {2}as deleted; on record: srv_e/
  ],
  [
    keptUntil,
    "a kept server that was purged before its time",
    withTables(() => ({ kept_servers: [] })),
    /srv_e has run, was deleted, and is not kept/
  ],
  [
    returns,
    "a deleted server that comes back without a request",
    withTables(({ journal }) => ({
      journal: [...journal, ...journal.slice(-1).map((entry) => ({ ...entry, topic: "server:created" }))]
    })),
    /srv_e came back 1 times; 0 undeletions/
  ],
  [
    returns,
    "an acknowledged undeletion that was not carried out",
    withMore({ requested: { kind: "undelete", server: "srv_e" }, status: 202 }),
    /srv_e came back 0 times; 1 undeletions were acknowledged/
  ],
  [
    runs,
    "two runs at one time",
    withTables(({ schedule_runs: all }) => ({
      schedule_runs: [...all, ...all.map((run) => ({ ...run, id: "run_b" }))]
    })),
    /there are two runs of schedule_a at 2026-01-01/
  ],
  [
    runs,
    "a run that is done without its last step",
    withTables(({ schedule_run_servers: all }) => ({
      schedule_run_servers: all.map((server) => ({ ...server, step: 1 }))
    })),
    /run run_a is done at step 1 of 2/
  ],
  [
    runs,
    "a step whose line was not written",
    withNode("n0", () => ({ lines: [] })),
    /1 runs of schedule_a are done; too few lines "write 1"/
  ],
  [
    runs,
    "a backup step without a backup",
    withTables(({ journal }) => ({ journal: journal.filter(({ topic }) => topic !== "server:backup") })),
    /schedule_a has 0 backups of 1 runs/
  ],
  [
    runs,
    "a backup step that was done twice",
    withTables(({ journal }) => ({
      journal: journal.map((entry) =>
        entry.topic === "server:operation"
          ? { ...entry, topic: "server:backup", payload: { id: "b", server_id: "srv_a", name: "plan a" } }
          : entry
      )
    })),
    /schedule_a has 2 backups of 1 runs; 1 are done/
  ]
]

describe("model: invariants of a run", () => {
  it("a correct history violates no invariant", () => {
    assert.deepStrictEqual(
      invariants.map(({ name, problems }) => [name, problems(sound)]),
      invariants.map(({ name }) => [name, []])
    )
  })

  for (const [invariant, violation, history, expected] of broken) {
    it(`${invariant.name}: ${violation}`, () => {
      const problems = invariant.problems(history)
      assert.isTrue(
        problems.some((problem) => expected.test(problem)),
        problems.join("\n")
      )
    })
  }

  it("each invariant has a history that violates it", () => {
    assert.deepStrictEqual(
      invariants.filter((invariant) => !broken.some(([one]) => one === invariant)).map(({ name }) => name),
      []
    )
  })

  it("an allowed history is accepted: retries on a node that is drained later, named nodes, two commands at once", () => {
    const drained = withMore({ requested: create("key-b", "wide"), status: 202, id: "srv_b", node_id: "n1" })
    assert.deepStrictEqual(drains.problems(drained), [])
    const { body, ...rest } = create("key-z")
    const named = withMore({
      requested: { ...rest, body: { ...body, node_id: "n1" } },
      status: 202,
      id: "srv_z",
      node_id: "n1"
    })
    assert.deepStrictEqual(drains.problems(named), [])
    const both = withMore({
      requested: { kind: "power", server: "srv_a", action: "stop" },
      sent: 440,
      ended: 445
    })
    assert.deepStrictEqual(lastPowerAction.problems(both), [])
  })

  it("a start that is accepted during an installation has no effect if the installation fails", () => {
    const asked = withMore({
      requested: { kind: "power", server: "srv_b", action: "start" },
      sent: 2000,
      ended: 2001,
      status: 200
    })
    assert.strictEqual(lastPowerAction.problems(asked).length, 1)
    const { tables } = asked.end
    const journal = tables.journal.map((entry) =>
      entry.topic === "server:install" && entry.server_id === "srv_b"
        ? { ...entry, payload: { phase: "failed" } }
        : entry
    )
    const failed = { ...asked, end: { ...asked.end, tables: { ...tables, journal } } }
    assert.deepStrictEqual(lastPowerAction.problems(failed), [])
  })

  it("spec 3.19: a deleted server that was undeleted may be found again", () => {
    const last = sound.end.tables.journal.at(-1)
    assert.isDefined(last)
    const requested = { kind: "undelete", server: "srv_e" } as const
    const returned: History = {
      ...withTables(({ counters, journal }) => ({
        journal: [...journal, { ...last, cursor: last.cursor + 1, topic: "server:created" }],
        counters: counters.map((one) => ({ ...one, value: one.value + 1 })),
        kept_servers: []
      })),
      operations: [
        ...withMore({ requested, status: 202 }).operations,
        ...withMore({ requested: { kind: "get-server", server: "srv_e", what: "" } }).operations.slice(-1)
      ]
    }
    for (const { problems } of [returns, order, gone, keptUntil])
      assert.deepStrictEqual(problems(returned), [])
  })

  it("a change without a response may have been made, also after a later one", () => {
    const lost = withOperation(12, { status: undefined, lost: "abandoned" })
    const earlier = {
      ...lost,
      end: withTables(({ servers }) => ({
        servers: servers.map((server) =>
          server.id === "srv_b" ? { ...server, labels: { "client-0": "1" } } : server
        )
      })).end
    }
    assert.deepStrictEqual(lastPatch.problems(earlier), [])
  })

  it("a server with an expiry may be deleted without a request", () => {
    const expired = withOperation(5, {
      requested: { kind: "patch", server: "srv_c", body: { expires_in: 10 } }
    })
    assert.deepStrictEqual([...deletions.problems(expired), ...acknowledged.problems(expired)], [])
  })

  it("the end of a server that its node has removed may be published if the response to the removal was lost", () => {
    const withoutReports = withNode("n0", ({ sentReports }) => ({
      sentReports: new Map([...sentReports].filter(([id]) => id !== "srv_c"))
    }))
    assert.strictEqual(reports.problems(withoutReports).length, 1)
    const begun = { ...withoutReports, operations: withOperation(5, { status: 503 }).operations }
    assert.deepStrictEqual(reports.problems(begun), [])
  })
})
