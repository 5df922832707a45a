import { Schema } from "effect"
import { Allocations } from "./Allocation.ts"
import { InstallState } from "./InstallState.ts"
import { Migration } from "./Migration.ts"
import { Crash } from "./ServerEvent.ts"
import { ServerStatus } from "./ServerStatus.ts"

/** Where a change concerns no server. */
const NoServer = Schema.Literal("")

/**
 * One committed change. Topics without a `:` are public events (contract 6.2). The others are internal and tell
 * followers what to read again: their name before the `:` is the kind of thing that changed.
 */
export const Change = Schema.Union([
  Schema.Struct({ topic: Schema.Literal("status"), server_id: Schema.String, payload: ServerStatus }),
  Schema.Struct({ topic: Schema.Literal("crash"), server_id: Schema.String, payload: Crash }),
  Schema.Struct({ topic: Schema.Literal("deleted"), server_id: Schema.String, payload: Schema.Null }),
  Schema.Struct({ topic: Schema.Literal("server:created"), server_id: Schema.String, payload: Schema.Null }),
  Schema.Struct({ topic: Schema.Literal("server:install"), server_id: Schema.String, payload: InstallState }),
  Schema.Struct({
    topic: Schema.Literal("server:start-pending"),
    server_id: Schema.String,
    payload: Schema.Boolean
  }),
  Schema.Struct({
    topic: Schema.Literal("server:placed"),
    server_id: Schema.String,
    payload: Schema.Struct({ node_id: Schema.String, allocations: Allocations })
  }),
  Schema.Struct({
    topic: Schema.Literal("server:move"),
    server_id: Schema.String,
    payload: Schema.NullOr(Migration)
  }),
  /** A node has a copy of a server's files that it is to delete. */
  Schema.Struct({ topic: Schema.Literal("server:left"), server_id: Schema.String, payload: Schema.String }),
  /** There is reason to think that its node has lost it: the node is to be asked. */
  Schema.Struct({ topic: Schema.Literal("server:suspect"), server_id: Schema.String, payload: Schema.Null }),
  /** An API key was made or revoked; concerns no server, as those below. */
  Schema.Struct({ topic: Schema.Literal("key:changed"), server_id: NoServer, payload: Schema.Null }),
  /** The record of a node is another, or gone. */
  Schema.Struct({
    topic: Schema.Literal("node:changed"),
    server_id: NoServer,
    payload: Schema.Struct({
      node_id: Schema.String,
      kind: Schema.Literals([
        "connected",
        "disconnected",
        "expelled",
        "lost",
        "given-up",
        "drained",
        "removed"
      ])
    })
  }),
  /** Whether a node can be called is another than before; the payload is its id. */
  Schema.Struct({ topic: Schema.Literal("node:reach"), server_id: NoServer, payload: Schema.String }),
  /** A node is to be emptied of its saved servers, or not any more; the payload is its id. */
  Schema.Struct({ topic: Schema.Literal("node:evacuation"), server_id: NoServer, payload: Schema.String }),
  /** One replica has read a folder of definitions anew: the others are to, each its own. */
  Schema.Struct({
    topic: Schema.Literal("definitions:reloaded"),
    server_id: NoServer,
    payload: Schema.Struct({
      folder: Schema.Literals(["blueprints", "software"]),
      /** Which replica it was. */
      origin: Schema.String
    })
  }),
  /** A newer version, to which replicas are changing over, tells of something that this one does not know. */
  Schema.Struct({ topic: Schema.Literal("unknown:change"), server_id: Schema.String, payload: Schema.Null })
])
export type Change = typeof Change.Type

/** A {@link Change} with its place in the one total order: gapless, in commit order. */
export interface JournalEntry {
  readonly cursor: number
  /** Commit time, milliseconds since the epoch. */
  readonly at: number
  /** Blueprint of the server, so that streams can filter by it after the record is gone. */
  readonly blueprint_id: string
  readonly change: Change
}

const topics: ReadonlySet<string> = new Set(Change.members.map(({ fields }) => fields.topic.literal))

/** Whether a topic is one of {@link Change}. */
export const isTopic = (topic: string): boolean => topics.has(topic)

/** Whether a change is one of the public events (contract 6.2). */
export const isPublic = (change: { readonly topic: string }): boolean => !change.topic.includes(":")

/** Oldest and newest cursor that the journal keeps; `newest` is 0 before the first change. */
export interface JournalBounds {
  /** Cursor of the oldest kept entry; `newest + 1` when none is kept. */
  readonly oldest: number
  readonly newest: number
}
