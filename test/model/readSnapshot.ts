/** Reads the state of a run, and returns the work in progress. */
import { Effect, Schema } from "effect"
import { hasEnded } from "../../src/contract/domain/Operation.ts"
import { isOver } from "../../src/contract/domain/Rollout.ts"
import { digestOf } from "../controlPlane/servers/support/FakeBackups.ts"
import { statementsOn } from "../support/postgresDatabase.ts"
import { adminKey, requestTo } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"
import type { ReadBackup } from "./History.ts"
import type { Recorder } from "./Recorder.ts"
import {
  definitionOf,
  INCLUDE,
  Listed,
  NodeSeen,
  portsOf,
  type ReplicaSeen,
  type Snapshot,
  Tables,
  tableColumns
} from "./Snapshot.ts"
import { READ_BACKUPS } from "./settings.ts"
import { PORTS, type Replica, type Setup } from "./setup.ts"

const tablesStatement = `SELECT json_build_object(${Object.entries(tableColumns)
  .map(
    ([table, { columns, order }]) =>
      `'${table}', (SELECT COALESCE(json_agg(row_to_json(t)), '[]') FROM (SELECT ${columns} FROM ${table} ORDER BY ${order}) t)`
  )
  .join(", ")})::text AS tables`

const decodeTables = Schema.decodeUnknownEffect(Schema.fromJsonString(Tables))
const decodeList = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Array(Listed)))
const decodeNode = Schema.decodeUnknownEffect(Schema.fromJsonString(NodeSeen))

/** All tables at one moment. */
export const readTables = Effect.fnUntraced(function* (url: string) {
  const [rows] = yield* statementsOn(url, tablesStatement)
  return yield* decodeTables(rows?.[0]?.tables)
})

const MOST_LISTED = 1_000
/** Between two looks at the operations. */
const LOOK = "200 millis"

/** The ids of the deleted servers that a replica lists. */
const allDeleted = Effect.fnUntraced(function* (api: Parameters<typeof expectStatus>[0]) {
  const { json } = yield* expectStatus(api, 200, "GET", `/api/servers?deleted=true&limit=${MOST_LISTED}`)
  return json.map(({ id }: { readonly id: string }): string => id)
})

const readReplica = Effect.fnUntraced(function* (replica: Replica, nodes: ReadonlyArray<string>) {
  const api = { request: requestTo(replica.url, adminKey) }
  const list = yield* expectStatus(api, 200, "GET", `/api/servers?${INCLUDE}`)
  const details = yield* Effect.forEach(nodes, (id) =>
    Effect.flatMap(expectStatus(api, 200, "GET", `/api/nodes/${id}`), ({ text }) => decodeNode(text))
  )
  const deleted = yield* allDeleted(api)
  return {
    servers: yield* decodeList(list.text),
    text: list.text,
    nodes: details,
    deleted
  } satisfies ReplicaSeen
})

const decodeIds = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Array(Schema.Struct({ id: Schema.String })))
)

/** Records which operations are done, until it is interrupted; the database may be away. */
export const watchOperations = (setup: Setup, recorder: Recorder) =>
  Effect.forever(
    Effect.gen(function* () {
      const [rows] = yield* statementsOn(
        setup.url,
        `SELECT COALESCE(json_agg(o), '[]')::text AS done FROM (SELECT id FROM operations WHERE state = 'done') o`
      )
      recorder.done((yield* decodeIds(rows?.[0]?.done)).map(({ id }) => id))
    }).pipe(Effect.timeout("5 seconds"), Effect.ignore, Effect.andThen(Effect.sleep(LOOK)))
  )

/** The contents of some finished backups, from any replica. */
export const readFinished = (setup: Setup, { tables }: Snapshot) =>
  Effect.forEach(
    tables.backups.filter(({ state }) => state === "done").slice(-READ_BACKUPS),
    ({ id }, index) => {
      const { url = "" } = setup.replicas[index % setup.replicas.length] ?? {}
      const read = requestTo(url, adminKey)("GET", `/api/backups/${id}/archive`)
      return Effect.map(read, ({ status, text }): ReadBackup => ({ id, status, text }))
    }
  )

export const readSnapshot = Effect.fnUntraced(function* (setup: Setup) {
  const ids = setup.nodes.map(({ id }) => id)
  const tables = yield* readTables(setup.url)
  const replicas = yield* Effect.forEach(setup.replicas, (replica) => readReplica(replica, ids))
  const nodes = setup.nodes.map(({ brain, id, sentReports }) => {
    const instances = [...brain.instances].map(([server, { install, next, spec, status }]) => ({
      id: server,
      definition: definitionOf((next ?? spec).definition),
      status,
      phase: install.phase,
      ports: portsOf(spec.allocations)
    }))
    const servers = new Set(tables.journal.map(({ server_id }) => server_id))
    return {
      id,
      ports: PORTS,
      instances,
      kept: [...brain.kept.keys()],
      backups: new Map([...brain.backups.stored].map(([backup, text]) => [backup, digestOf(text)])),
      parts: [...brain.backups.parts],
      lines: brain.lines,
      sentReports: new Map([...servers].map((server) => [server, sentReports(server)]))
    }
  })
  return { tables, replicas, nodes } satisfies Snapshot
})

/** The work in progress, in short form; empty: the run is idle. */
export const pendingWork = (setup: Setup, { nodes, replicas, tables }: Snapshot): ReadonlyArray<string> => {
  const newest = tables.counters.find(({ name }) => name === "journal")?.value ?? 0
  const received = tables.journal.filter(({ topic }) => !topic.includes(":")).at(-1)?.cursor
  const has = new Map(
    nodes.flatMap(({ id, instances }) => instances.map((it) => [`${id} ${it.id}`, it] as const))
  )
  const isOverdue = (expires_at: string | null) => expires_at !== null && Date.parse(expires_at) <= Date.now()
  return [
    ...tables.operations
      .filter(({ state }) => !hasEnded(state))
      .map(({ id, kind, server_id, state }) => `operation ${id} (${kind} of ${server_id}) is ${state}`),
    ...tables.backups
      .filter(({ state }) => state !== "done" && state !== "failed")
      .map(({ id, node_id, state }) => `backup ${id} on ${node_id} is ${state}`),
    ...tables.schedule_runs
      .filter(({ state }) => state === "running")
      .map(({ id, schedule_id }) => `run ${id} of ${schedule_id} is running`),
    ...tables.kept_servers
      .filter(({ purge_at }) => purge_at <= Date.now())
      .map(({ id, node_id }) => `${id} is to be purged on ${node_id}`),
    ...tables.servers
      .filter(({ expires_at }) => isOverdue(expires_at))
      .map(({ expires_at, id }) => `${id} expired at ${expires_at}`),
    ...(tables.journal.at(-1)?.cursor === newest ? [] : ["the journal grows"]),
    ...tables.servers.flatMap(({ id, install, node_id, start_pending, status }) => {
      const there = has.get(`${node_id} ${id}`)
      const what = `${id} on ${node_id} is ${status}, install ${install.phase}${start_pending ? ", to be started" : ""}`
      if (there === undefined) return [`${what}; its node does not have it`]
      const still = there.status === status && there.phase === install.phase && install.phase !== "installing"
      // A server whose installation failed is not started.
      const waits = start_pending === 1 && install.phase !== "failed"
      return still && install.phase !== "pending" && !waits
        ? []
        : [`${what}; its node: ${there.status}, ${there.phase}`]
    }),
    ...tables.servers
      .filter(({ redefinition }) => redefinition?.delivered === false)
      .map(({ id, node_id }) => `${node_id} does not have the definition of ${id}`),
    ...tables.rollouts
      .filter(({ state }) => !isOver(state))
      .map(({ id, state }) => `rollout ${id} is ${state}`),
    ...tables.migrations
      .filter(({ phase }) => phase !== "failed")
      .map(({ phase, server_id }) => `${server_id} is ${phase}`),
    ...tables.pending_deletions.map(({ node_id, server_id }) => `${node_id} is to delete ${server_id}`),
    ...tables.removals.map(({ server_id }) => `${server_id} is being removed`),
    ...tables.suspects.map(({ server_id }) => `${server_id} is suspected`),
    ...tables.nodes.filter(({ connected }) => connected !== 1).map(({ id }) => `${id} is not connected`),
    ...replicas.flatMap(({ nodes: seen, text }, index) => [
      ...(text === replicas[0]?.text ? [] : [`replica ${index} has another list than replica 0`]),
      ...seen
        .filter(({ connected }) => !connected)
        .map(({ id }) => `replica ${index}: ${id} is not connected`)
    ]),
    ...setup.nodes.filter((node) => !node.quiet()).map(({ id }) => `${id} has unsent reports`),
    ...setup.subscribers
      .filter(({ received: seen }) => seen().at(-1)?.cursor !== received)
      .map(({ name, received: seen }) => `${name} is at ${seen().at(-1)?.cursor}, not at ${received}`)
  ]
}
