import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** Servers and their ports, nodes, keys, responses to idempotent requests, the journal, and counters. */
export const initial = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)

  yield* sql`CREATE TABLE servers (
    id ${id} PRIMARY KEY NOT NULL,
    blueprint_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    allocations TEXT NOT NULL,
    overrides TEXT,
    definition TEXT NOT NULL,
    status TEXT NOT NULL,
    install TEXT NOT NULL,
    start_pending INTEGER NOT NULL,
    last_sequence ${big} NOT NULL,
    created_at TEXT NOT NULL
  )`
  yield* sql`CREATE TABLE ports (
    node_id TEXT NOT NULL,
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    server_id ${id} NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    PRIMARY KEY (node_id, address, port)
  )`
  yield* sql`CREATE INDEX ports_by_server ON ports (server_id)`
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
    departed INTEGER NOT NULL
  )`
  yield* sql`CREATE TABLE api_keys (
    id ${id} PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
  )`
  yield* sql`CREATE TABLE idempotency (
    key TEXT PRIMARY KEY NOT NULL,
    body_hash TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at ${big} NOT NULL
  )`
  yield* sql`CREATE INDEX idempotency_by_age ON idempotency (created_at)`
  yield* sql`CREATE TABLE journal (
    cursor ${big} PRIMARY KEY NOT NULL,
    at ${big} NOT NULL,
    topic TEXT NOT NULL,
    server_id TEXT NOT NULL,
    blueprint_id TEXT NOT NULL,
    payload TEXT NOT NULL
  )`
  // journal: cursor of the newest entry. keys: grows with every change of api_keys.
  yield* sql`CREATE TABLE counters (name TEXT PRIMARY KEY NOT NULL, value ${big} NOT NULL)`
  yield* sql`INSERT INTO counters (name, value) VALUES ('journal', 0), ('keys', 0)`
})
