import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Rollouts: `rollout_servers` has the progress of each server, and after the end only those that failed,
 * `rollout_definitions` the definitions that servers get or get back. A server is in one unfinished rollout at most.
 */
export const rollouts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE rollouts (
    id ${id} PRIMARY KEY NOT NULL,
    state TEXT NOT NULL,
    settings TEXT NOT NULL,
    total INTEGER NOT NULL,
    done INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL,
    canary_left INTEGER NOT NULL,
    rolling_back INTEGER NOT NULL,
    reason TEXT,
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
    restarted_at ${big},
    crash_before TEXT,
    reason TEXT,
    active INTEGER NOT NULL,
    PRIMARY KEY (rollout_id, server_id)
  )`
  yield* sql`CREATE UNIQUE INDEX rollout_servers_unfinished ON rollout_servers (server_id) WHERE active = 1`
  yield* sql`CREATE INDEX rollout_servers_by_phase ON rollout_servers (rollout_id, phase, position)`
  yield* sql`CREATE TABLE rollout_definitions (
    rollout_id ${id} NOT NULL,
    revision TEXT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (rollout_id, revision)
  )`
})
