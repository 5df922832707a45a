import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/Backend.ts"

const serverTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  // One row for each text of a definition, by its SHA-256, however many servers have it.
  yield* sql`CREATE TABLE definitions (hash ${id} PRIMARY KEY NOT NULL, definition TEXT NOT NULL)`
  // The columns of objects have JSON. expiry_announced: the expiry that the last `expiring` event announced.
  yield* sql`CREATE TABLE servers (
    id ${id} PRIMARY KEY NOT NULL,
    blueprint_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    allocations TEXT NOT NULL,
    overrides TEXT,
    definition_hash ${id} NOT NULL,
    redefinition TEXT,
    status TEXT NOT NULL,
    install TEXT NOT NULL,
    start_pending INTEGER NOT NULL,
    restart TEXT,
    run TEXT,
    problem TEXT,
    last_sequence ${big} NOT NULL,
    name TEXT,
    labels TEXT NOT NULL,
    expires_at TEXT,
    expiry_announced TEXT,
    created_by ${id},
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    trace TEXT,
    has_run INTEGER NOT NULL DEFAULT 0
  )`
  yield* sql`CREATE INDEX servers_by_creator ON servers (created_by) WHERE created_by IS NOT NULL`
  yield* sql`CREATE INDEX servers_by_definition ON servers (definition_hash)`
  yield* sql`CREATE TABLE ports (
    node_id TEXT NOT NULL,
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    server_id ${id} NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    PRIMARY KEY (node_id, address, port)
  )`
  yield* sql`CREATE INDEX ports_by_server ON ports (server_id)`
  // The reservations of servers, one row for a server on a node; their sums on a node decide placement.
  yield* sql`CREATE TABLE reservations (
    server_id ${id} NOT NULL REFERENCES servers (id),
    node_id ${id} NOT NULL,
    blueprint_id TEXT NOT NULL,
    memory_bytes ${big} NOT NULL,
    disk_bytes ${big} NOT NULL,
    cpu_millipercent ${big} NOT NULL,
    PRIMARY KEY (server_id, node_id)
  )`
  yield* sql`CREATE INDEX reservations_by_node ON reservations (node_id, blueprint_id, memory_bytes, disk_bytes)`
  // Servers whose removal has begun; keeps: whether their files are kept.
  yield* sql`CREATE TABLE removals (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    keeps INTEGER NOT NULL DEFAULT 0
  )`
  // Servers whose nodes must be asked whether they still have them.
  yield* sql`CREATE TABLE suspects (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE
  )`
  yield* sql`CREATE TABLE migrations (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    from_node TEXT NOT NULL,
    phase TEXT NOT NULL,
    arrival TEXT NOT NULL,
    was_up INTEGER,
    reason TEXT,
    origin TEXT,
    notified_at TEXT
  )`
  // The files that a node must delete, also of deleted servers.
  yield* sql`CREATE TABLE pending_deletions (
    server_id ${id} NOT NULL,
    node_id TEXT NOT NULL,
    PRIMARY KEY (server_id, node_id)
  )`
  // Deleted servers whose files are kept. record: the whole record at the deletion.
  yield* sql`CREATE TABLE kept_servers (
    id ${id} PRIMARY KEY NOT NULL,
    node_id ${id} NOT NULL,
    created_by ${id},
    record TEXT NOT NULL,
    disk_bytes ${big} NOT NULL,
    deleted_at ${big} NOT NULL,
    purge_at ${big} NOT NULL
  )`
  yield* sql`CREATE INDEX kept_servers_by_time ON kept_servers (deleted_at, id)`
  yield* sql`CREATE INDEX kept_servers_by_purge ON kept_servers (purge_at)`
  yield* sql`CREATE INDEX kept_servers_by_node ON kept_servers (node_id, deleted_at)`
  yield* sql`CREATE TABLE deleted_servers (
    id ${id} PRIMARY KEY NOT NULL,
    name ${id},
    blueprint_id TEXT NOT NULL,
    labels TEXT NOT NULL,
    deleted_at ${big} NOT NULL,
    reason TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX deleted_servers_by_name ON deleted_servers (name, deleted_at)`
  yield* sql`CREATE INDEX deleted_servers_by_time ON deleted_servers (deleted_at)`
  // labels: of a deleted server.
  yield* sql`CREATE TABLE crashes (
    id ${id} PRIMARY KEY NOT NULL,
    recorded_at ${big} NOT NULL,
    server_id ${id} NOT NULL,
    server_name ${id},
    blueprint_id TEXT NOT NULL,
    node_id ${id} NOT NULL,
    labels TEXT,
    summary TEXT NOT NULL,
    lines TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX crashes_by_blueprint ON crashes (blueprint_id, recorded_at, id)`
  yield* sql`CREATE INDEX crashes_by_server ON crashes (server_id, recorded_at, id)`
  yield* sql`CREATE INDEX crashes_by_time ON crashes (recorded_at, id)`
})

const nodeTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  // unreachable: why calls to the node fail; empty before the first call, null while calls work.
  yield* sql`CREATE TABLE nodes (
    id ${id} PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    location TEXT NOT NULL,
    url TEXT NOT NULL,
    version TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    token TEXT NOT NULL,
    allocations TEXT NOT NULL,
    capacity TEXT NOT NULL,
    runtimes TEXT NOT NULL,
    system TEXT NOT NULL,
    drained INTEGER NOT NULL,
    last_seen_at TEXT,
    departed INTEGER NOT NULL,
    connected INTEGER NOT NULL,
    gone TEXT,
    embedded INTEGER NOT NULL,
    unreachable TEXT
  )`
  // beats: grows with each record of a replica. heard_at: in ms since the epoch.
  yield* sql`CREATE TABLE node_heartbeats (
    node_id ${id} PRIMARY KEY NOT NULL,
    boot_id TEXT NOT NULL,
    beats ${big} NOT NULL,
    heard_at ${big} NOT NULL,
    usage TEXT NOT NULL
  )`
  yield* sql`CREATE TABLE drains (
    node_id TEXT PRIMARY KEY NOT NULL,
    asked_at TEXT NOT NULL,
    parallel INTEGER,
    deadline_at TEXT,
    notify TEXT,
    notify_seconds INTEGER,
    notified INTEGER NOT NULL
  )`
})

const accessTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  // access: scope, rights and limits. node_id: of a node's key, from the registration of the node on.
  yield* sql`CREATE TABLE api_keys (
    id ${id} PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    access TEXT NOT NULL,
    quota ${id},
    node_id TEXT,
    hash TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
  )`
  yield* sql`CREATE INDEX api_keys_by_quota ON api_keys (quota) WHERE quota IS NOT NULL`
  // The servers of a quota are those whose created_by is a key with it.
  yield* sql`CREATE TABLE quotas (
    name ${id} PRIMARY KEY NOT NULL,
    limits TEXT NOT NULL,
    created_at TEXT NOT NULL
  )`
  // stream: a hash of the request that a used ticket opened. start_cursor: where that stream began.
  yield* sql`CREATE TABLE tickets (
    hash ${id} PRIMARY KEY NOT NULL,
    key_id TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    expires_at ${big} NOT NULL,
    stream TEXT,
    start_cursor ${big},
    times_opened ${big} NOT NULL DEFAULT 0,
    is_open ${big} NOT NULL DEFAULT 0
  )`
  yield* sql`CREATE INDEX tickets_by_age ON tickets (expires_at)`
  // At most one row: the private key by which clients of SFTP know the service, encrypted.
  yield* sql`CREATE TABLE sftp_host_key (id INTEGER PRIMARY KEY NOT NULL, sealed TEXT NOT NULL)`
  // SSH keys, each of one API key, by their fingerprint.
  yield* sql`CREATE TABLE ssh_keys (
    fingerprint ${id} PRIMARY KEY NOT NULL,
    id ${id} NOT NULL,
    key_id ${id} NOT NULL,
    type TEXT NOT NULL,
    comment TEXT NOT NULL,
    created_at TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX ssh_keys_by_key ON ssh_keys (key_id)`
  // The SHA-256 of temporary passwords for SFTP. expires_at: in ms since the epoch.
  yield* sql`CREATE TABLE sftp_logins (
    hash ${id} PRIMARY KEY NOT NULL,
    key_id ${id} NOT NULL,
    server_id ${id} NOT NULL,
    expires_at ${big} NOT NULL
  )`
  yield* sql`CREATE INDEX sftp_logins_by_age ON sftp_logins (expires_at)`
  yield* sql`CREATE TABLE audit (
    id ${id} PRIMARY KEY NOT NULL,
    object_id ${id},
    object_name ${id},
    key_id ${id},
    actor TEXT NOT NULL,
    action ${id} NOT NULL,
    status INTEGER NOT NULL,
    entry TEXT NOT NULL,
    bytes INTEGER NOT NULL
  )`
  yield* sql`CREATE INDEX audit_by_object ON audit (object_id, id)`
  yield* sql`CREATE INDEX audit_by_name ON audit (object_name, id)`
  // The objects of bulk actions.
  yield* sql`CREATE TABLE audit_objects (
    entry_id ${id} NOT NULL REFERENCES audit (id) ON DELETE CASCADE,
    object_id ${id} NOT NULL,
    object_name ${id},
    PRIMARY KEY (entry_id, object_id)
  )`
  yield* sql`CREATE INDEX audit_objects_by_object ON audit_objects (object_id)`
  yield* sql`CREATE INDEX audit_objects_by_name ON audit_objects (object_name)`
  yield* sql`CREATE TABLE idempotency (
    key TEXT PRIMARY KEY NOT NULL,
    body_hash TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at ${big} NOT NULL
  )`
  yield* sql`CREATE INDEX idempotency_by_age ON idempotency (created_at)`
  // At most one row: the secret of the services.
  yield* sql`CREATE TABLE secret_fingerprint (id INTEGER PRIMARY KEY NOT NULL, fingerprint TEXT NOT NULL)`
})

/** Rollouts with the progress of their servers; after the end, the servers that failed remain. */
const rolloutTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  // origin: the request that has created the rollout, and the revisions before and after.
  yield* sql`CREATE TABLE rollouts (
    id ${id} PRIMARY KEY NOT NULL,
    state TEXT NOT NULL,
    settings TEXT NOT NULL,
    origin TEXT NOT NULL,
    total INTEGER NOT NULL,
    done INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL,
    canary_left INTEGER NOT NULL,
    rolling_back INTEGER NOT NULL,
    reason TEXT,
    created_by ${id},
    created_at TEXT NOT NULL,
    finished_at TEXT
  )`
  yield* sql`CREATE INDEX rollouts_by_time ON rollouts (created_at, id)`
  yield* sql`CREATE TABLE rollout_servers (
    rollout_id ${id} NOT NULL,
    server_id ${id} NOT NULL,
    position INTEGER NOT NULL,
    phase TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    target TEXT NOT NULL,
    earlier TEXT NOT NULL,
    was_up INTEGER,
    stopped INTEGER NOT NULL,
    notified_at ${big},
    restarted_at ${big},
    crash_before TEXT,
    reason TEXT,
    active INTEGER NOT NULL,
    PRIMARY KEY (rollout_id, server_id)
  )`
  // A server is in one unfinished rollout at most.
  yield* sql`CREATE UNIQUE INDEX rollout_servers_unfinished ON rollout_servers (server_id) WHERE active = 1`
  yield* sql`CREATE INDEX rollout_servers_by_phase ON rollout_servers (rollout_id, phase, position)`
  // The definitions that servers get or get back.
  yield* sql`CREATE TABLE rollout_definitions (
    rollout_id ${id} NOT NULL,
    revision TEXT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (rollout_id, revision)
  )`
})

/** Operations of servers. */
const operationTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { id } = columnTypes(sql)
  // request: null after the end. cancelling: why a running operation is to be cancelled.
  yield* sql`CREATE TABLE operations (
    id ${id} PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL,
    server_id ${id} NOT NULL,
    state TEXT NOT NULL,
    request TEXT,
    progress TEXT,
    reason TEXT,
    cancelling TEXT,
    created_by ${id},
    created_at TEXT NOT NULL,
    finished_at TEXT
  )`
  yield* sql`CREATE INDEX operations_by_time ON operations (created_at, id)`
  yield* sql`CREATE INDEX operations_by_server ON operations (server_id, created_at, id)`
  yield* sql`CREATE INDEX operations_unfinished ON operations (server_id) WHERE finished_at IS NULL`
  yield* sql`CREATE INDEX operations_by_end ON operations (finished_at, id) WHERE finished_at IS NOT NULL`
})

/** Schedules, their runs, and the servers of each run. */
const scheduleTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE schedules (
    id ${id} PRIMARY KEY NOT NULL,
    settings TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    server_id ${id},
    next_at TEXT,
    created_by ${id},
    created_at TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX schedules_by_next ON schedules (next_at) WHERE next_at IS NOT NULL`
  yield* sql`CREATE INDEX schedules_by_server ON schedules (server_id) WHERE server_id IS NOT NULL`
  // settings: null after the end. cancelling: why a run is to be cancelled.
  yield* sql`CREATE TABLE schedule_runs (
    id ${id} PRIMARY KEY NOT NULL,
    schedule_id ${id} NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    due_at ${id} NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    settings TEXT,
    created_by ${id},
    cancelling TEXT,
    started_at TEXT,
    finished_at TEXT
  )`
  // A schedule runs at a time once.
  yield* sql`CREATE UNIQUE INDEX schedule_runs_by_time ON schedule_runs (schedule_id, due_at)`
  yield* sql`CREATE INDEX schedule_runs_unfinished ON schedule_runs (schedule_id) WHERE finished_at IS NULL`
  yield* sql`CREATE TABLE schedule_run_servers (
    run_id ${id} NOT NULL REFERENCES schedule_runs (id) ON DELETE CASCADE,
    server_id ${id} NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL,
    step INTEGER NOT NULL,
    begun_at ${big},
    warned INTEGER NOT NULL,
    stopped INTEGER NOT NULL,
    reason TEXT,
    PRIMARY KEY (run_id, server_id)
  )`
})

/** Backups, which outlive their servers and operations, and the targets of the API. */
const backupTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { id } = columnTypes(sql)
  yield* sql`CREATE TABLE backups (
    id ${id} PRIMARY KEY NOT NULL,
    server_id ${id} NOT NULL,
    server_name TEXT,
    blueprint_id TEXT NOT NULL,
    name TEXT,
    labels TEXT NOT NULL,
    server_labels TEXT NOT NULL,
    overrides TEXT NOT NULL,
    state TEXT NOT NULL,
    target TEXT NOT NULL,
    node_id TEXT NOT NULL,
    operation_id ${id} NOT NULL,
    figures TEXT,
    pinned INTEGER NOT NULL,
    expires_at TEXT,
    created_by ${id},
    created_at TEXT NOT NULL,
    finished_at TEXT,
    reason TEXT,
    drill TEXT,
    verified TEXT,
    schedule TEXT
  )`
  yield* sql`CREATE INDEX backups_by_time ON backups (created_at, id)`
  yield* sql`CREATE INDEX backups_by_server ON backups (server_id, created_at, id)`
  yield* sql`CREATE INDEX backups_by_operation ON backups (operation_id)`
  yield* sql`CREATE INDEX backups_by_expiry ON backups (expires_at) WHERE expires_at IS NOT NULL`
  yield* sql`CREATE INDEX backups_to_delete ON backups (id) WHERE state = 'deleting'`
  yield* sql`CREATE TABLE backup_targets (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    settings TEXT NOT NULL,
    sealed TEXT
  )`
})

/** The journal, and webhooks with the place up to which each has delivered. */
const eventTables = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { big, id } = columnTypes(sql)
  // labels: of the server at the time of the change.
  yield* sql`CREATE TABLE journal (
    cursor ${big} PRIMARY KEY NOT NULL,
    at ${big} NOT NULL,
    topic TEXT NOT NULL,
    server_id TEXT NOT NULL,
    blueprint_id TEXT NOT NULL,
    labels TEXT,
    payload TEXT NOT NULL
  )`
  yield* sql`CREATE TABLE webhooks (
    id ${id} PRIMARY KEY NOT NULL,
    created_at ${big} NOT NULL,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    sealed TEXT NOT NULL,
    position ${big} NOT NULL,
    is_parked INTEGER NOT NULL,
    failing_since ${big},
    failure TEXT
  )`
  yield* sql`CREATE TABLE webhook_deliveries (
    id ${id} PRIMARY KEY NOT NULL,
    webhook_id ${id} NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    at ${big} NOT NULL,
    delivery TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, at, id)`
  // journal: cursor of the newest entry. keys: grows with every change of api_keys. audit_bytes: size of the audit log.
  yield* sql`CREATE TABLE counters (name TEXT PRIMARY KEY NOT NULL, value ${big} NOT NULL)`
  yield* sql`INSERT INTO counters (name, value) VALUES ('journal', 0), ('keys', 0), ('audit_bytes', 0)`
})

/** The schema of version 0.2.0. Columns with JSON are TEXT; columns that end in `_at` have RFC 3339 or milliseconds since the epoch. */
export const schema = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const tables of [
    serverTables,
    nodeTables,
    accessTables,
    rolloutTables,
    operationTables,
    scheduleTables,
    backupTables,
    eventTables
  ]) {
    yield* tables(sql)
  }
})
