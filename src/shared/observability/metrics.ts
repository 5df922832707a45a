/** Every metric, with its labels; `docs/metrics.md` is generated from this file. */
import { Metric } from "effect"

/** The values of each label; all are bounded in number. */
type Labels = Readonly<Record<string, string>>

/** The programs whose `/metrics` have a metric. */
type Origin = "service" | "daemon" | "service, daemon"

export interface ListedMetric {
  readonly name: string
  readonly type: Metric.Metric.Type
  readonly description: string
  readonly labels: Labels
  readonly origin: Origin
}

const listed: Array<ListedMetric> = []

const list = <Input, State>(
  metric: Metric.Metric<Input, State>,
  labels: Labels,
  origin: Origin
): Metric.Metric<Input, State> => {
  const { description = "", id: name, type } = metric
  listed.push({ name, type, description, labels, origin })
  return metric
}

const counter = (name: string, description: string, labels: Labels = {}, origin: Origin = "service") =>
  list(Metric.counter(name, { description, incremental: true }), labels, origin)

const gauge = (name: string, description: string, labels: Labels = {}, origin: Origin = "service") =>
  list(Metric.gauge(name, { description }), labels, origin)

const histogram = (
  name: string,
  description: string,
  boundaries: ReadonlyArray<number>,
  labels: Labels = {},
  origin: Origin = "service"
) => list(Metric.histogram(name, { description, boundaries }), labels, origin)

const both = "service, daemon"
const node = "id of the node"

/** Seconds of an installation, which may pull an image or download a game. */
const LONG = [1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600]

export const buildInfo = gauge(
  "muster_build_info",
  "1; the labels have the versions.",
  { version: "version of Muster", node_version: "version of Node.js" },
  both
)

// Servers
export const waitingStarts = gauge(
  "muster_servers_waiting",
  "Servers that wait for their node to start them after its return."
)
export const serverCount = gauge("muster_servers", "Servers by status.", { status: "status of the server" })
export const crashes = counter("muster_server_crashes_total", "Crashes of servers by cause.", {
  cause: "`exit_code`, `signal`, `out_of_memory`, `start_timeout`"
})
export const restarts = counter("muster_server_restarts_total", "Restarts of crashed servers by outcome.", {
  outcome: "`pending`: a restart follows; `given_up`: the limit of restarts is reached"
})
export const installations = counter("muster_installations_total", "Ended installations by outcome.", {
  outcome: "`ready`, `failed`"
})
export const installationDuration = histogram(
  "muster_installation_duration_seconds",
  "Time of an installation on its node.",
  LONG,
  { outcome: "`ready`, `failed`" }
)
export const startDuration = histogram(
  "muster_server_start_duration_seconds",
  "Time from `starting` to `running`.",
  [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600]
)
export const placements = counter("muster_placements_total", "Placements by outcome.", {
  outcome: "`placed`, `refused`"
})

// Operations and backups
const operation = {
  kind: "task of the operation, such as `backup.create`",
  outcome: "`done`, `failed`, `cancelled`"
}
export const operationCount = counter(
  "muster_operations_total",
  "Ended operations by kind and outcome.",
  operation
)
export const operationDuration = histogram(
  "muster_operation_duration_seconds",
  "Time of an operation from its request to its end.",
  LONG,
  operation
)
const blueprint = { blueprint: "id of the blueprint" }
export const backupAge = gauge(
  "muster_backup_newest_age_seconds",
  "Age of the newest good backup of the servers of a blueprint.",
  blueprint
)
export const backupBytes = gauge(
  "muster_backup_stored_bytes",
  "Bytes that the good backups of the servers of a blueprint take, in total, without the bases that their targets store once.",
  blueprint
)

// Nodes
export const nodeCount = gauge("muster_nodes", "Known nodes by connection.", { connected: "`true`, `false`" })
export const nodeUp = gauge(
  "muster_node_up",
  "1 while the node is connected: its heartbeats arrive, and calls to its daemon work; else 0.",
  { node, name: "display name of the node" }
)
export const nodeDrained = gauge("muster_node_drained", "1 while the node is drained, else 0.", { node })
export const nodeServers = gauge("muster_node_servers", "Servers on the node.", { node })
export const nodeMemory = gauge("muster_node_memory_bytes", "Memory of the node's host.", { node })
export const nodeMemoryCommitted = gauge(
  "muster_node_memory_committed_bytes",
  "Memory limits of the servers on the node, in total.",
  { node }
)
export const nodePortsFree = gauge("muster_node_ports_free", "Ports of the node that no server has.", {
  node
})
export const nodeLoad = gauge("muster_node_load", "Load average of a node over one minute.", { node })
export const nodeMemoryUsed = gauge(
  "muster_node_memory_used_bytes",
  "Memory in use on the host of a node, from its last heartbeat.",
  { node }
)
export const nodeDiskUsed = gauge(
  "muster_node_disk_used_bytes",
  "Disk in use on the host of a node, from its last heartbeat.",
  { node }
)

// Requests and streams
const request = {
  method: "`GET`, ..., `other`",
  route: "path of the route, such as `/api/servers/:server`; `other`: no route"
}
export const httpRequests = counter(
  "muster_http_requests_total",
  "Requests by method, route and status.",
  { ...request, status: "status of the response; 101: a WebSocket" },
  both
)
export const httpDuration = histogram(
  "muster_http_request_duration_seconds",
  "Time to the head of the response.",
  [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
  request,
  both
)
export const httpConnections = gauge("muster_http_connections", "Open HTTP connections.")
export const httpDropped = counter(
  "muster_http_connections_dropped_total",
  "Connections dropped because too many were open."
)
export const authFailures = counter("muster_auth_failures_total", "Failed authentications, by reason.", {
  reason:
    "`no_header`, `malformed_header`, `malformed_key`, `unknown_key`, `revoked_key`, `expired_key`, `ticket`, `limited`"
})
export const subscribers = gauge("muster_event_subscribers", "Open event streams.")
export const openStreams = gauge(
  "muster_open_streams",
  "Open event streams and consoles, as the stream limits count them."
)
export const eventLag = histogram(
  "muster_event_lag_seconds",
  "Time from the commit of a change to its delivery to the event streams of this replica.",
  [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5]
)
export const subscribersCutOff = counter(
  "muster_event_subscribers_cut_off_total",
  "Event streams that were ended because their subscriber read too slowly."
)
export const auditLost = counter(
  "muster_audit_entries_lost_total",
  "Audit entries that were lost because the database was unavailable for too long."
)

export const auditSize = gauge(
  "muster_audit_bytes",
  "Bytes of the audit log in the database, which `MUSTER_AUDIT_KEEP_MIB` bounds."
)

// Database and disk
export const databaseUp = gauge(
  "muster_database_up",
  "1 while the database is available, else 0; writes are then refused."
)
/** With {@link storeMutations}, the number of writes per transaction. */
export const storeCommits = counter("muster_store_commits_total", "Write transactions committed.")
export const storeMutations = counter(
  "muster_store_mutations_total",
  "Mutations that were part of a committed write transaction."
)
export const journalNewest = gauge("muster_journal_newest_cursor", "Cursor of the newest change.")
export const journalOldest = gauge("muster_journal_oldest_cursor", "Cursor of the oldest retained change.")
export const diskFree = gauge(
  "muster_data_disk_free_bytes",
  "Free bytes on the disk of the data folder.",
  {},
  both
)

// The daemon
export const daemonServers = gauge(
  "muster_daemon_servers",
  "Servers of the node by status.",
  { status: "status of the server" },
  "daemon"
)
export const daemonReports = gauge(
  "muster_daemon_reports_waiting",
  "Reports that the control plane has not accepted yet.",
  {},
  "daemon"
)

// The process, with the names of the Prometheus clients
export const eventLoopLag = gauge(
  "muster_event_loop_lag_seconds",
  "Event loop delay since the last reading.",
  { percentile: "`50`, `99`, `100`: the longest" },
  both
)
export const cpuSeconds = counter(
  "process_cpu_seconds_total",
  "CPU time of the process, in seconds.",
  {},
  both
)
export const residentBytes = gauge("process_resident_memory_bytes", "Memory of the process.", {}, both)
export const openFds = gauge("process_open_fds", "Open file descriptors of the process.", {}, both)
export const maxFds = gauge("process_max_fds", "Most file descriptors that the process may open.", {}, both)
export const startTime = gauge(
  "process_start_time_seconds",
  "Start of the process, in seconds since the epoch.",
  {},
  both
)

export const metrics: ReadonlyArray<ListedMetric> = listed
