/** Rollouts: today's definition for many servers, a few at a time (spec 3.13). */
import { Schema } from "effect"
import { drainOptions } from "./Drain.ts"
import { ServerId } from "./Id.ts"
import { TimeText } from "./nowText.ts"
import { Selector } from "./Selector.ts"
import { DefinitionChange } from "./ServerDefinition.ts"

/**
 * `planned` until the leader begins, `canary` for the first servers, `running` also for a rollback, `paused` until a
 * caller resumes, `failed` if all servers were tried and some failed.
 */
export const RolloutState = Schema.Literals([
  "planned",
  "canary",
  "running",
  "paused",
  "done",
  "failed",
  "rolled_back",
  "aborted"
])
export type RolloutState = typeof RolloutState.Type

export const isOver = (state: RolloutState): boolean =>
  state === "done" || state === "failed" || state === "rolled_back" || state === "aborted"

export const Restarting = Schema.Literals(["now", "when_stopped"])
export const OnFailure = Schema.Literals(["pause", "continue", "rollback"])

export const MOST_PARALLEL = 50

/** Servers that are changed at a time as a part of those that change. */
export const Percentage = Schema.String.check(
  Schema.isPattern(/^([1-9][0-9]?|100)%$/, { expected: "a percentage from 1% to 100%" })
)

export const RolloutSettings = Schema.Struct({
  max_parallel: Schema.Int,
  canary: Schema.optionalKey(Schema.Int),
  restart: Restarting,
  on_failure: OnFailure,
  /** Seconds until a restarted server must be running; default: the `start_timeout` of its definition. */
  start_timeout: Schema.optionalKey(Schema.Int),
  /** A line for the console of each running server before its restart. */
  notify: Schema.optionalKey(drainOptions.notify),
  /** Seconds between the line and the restart. */
  notify_seconds: Schema.optionalKey(drainOptions.notify_seconds)
})

const RevisionView = Schema.Struct({ revision: Schema.String, version: Schema.String }).annotate({
  identifier: "Revision"
})

/** Servers of a blueprint that a rollout changes from one revision to another. */
const RevisionChange = Schema.Struct({
  blueprint_id: Schema.String,
  servers: Schema.Int,
  from: RevisionView,
  to: RevisionView
}).annotate({ identifier: "RevisionChange" })
export type RevisionChange = typeof RevisionChange.Type

/** Ids of a selector, and changes of revisions, that the record of a rollout has at most. */
export const MOST_RECORDED = 100

/** The request that has created a rollout, and the definitions that it replaces. */
export const RolloutOrigin = Schema.Struct({
  /** The selector of the request; of its ids, the first 100. */
  selector: Selector,
  created_by: Schema.optionalKey(
    Schema.Struct({ key_id: Schema.String, name: Schema.String }).annotate({ identifier: "RolloutCreator" })
  ),
  /** The revisions of the servers before and after, those of most servers first; at most 100. */
  revisions: Schema.Array(RevisionChange)
})
export type RolloutOrigin = typeof RolloutOrigin.Type

export const RolloutRecord = Schema.Struct({
  id: Schema.String,
  state: RolloutState,
  settings: RolloutSettings,
  total: Schema.Int,
  /** Servers that had the definition already; of a rollout that is over, all that are done. */
  done: Schema.Int,
  /** Of a rollout that is over: servers that have their earlier definition again. */
  rolled_back: Schema.Int,
  canary_left: Schema.Int,
  /** Whether the servers get their earlier definitions back. */
  rolling_back: Schema.Boolean,
  /** Why the rollout is paused, or rolls back. */
  reason: Schema.NullOr(Schema.String),
  created_at: TimeText,
  finished_at: Schema.NullOr(TimeText),
  created_by: Schema.NullOr(Schema.String),
  origin: RolloutOrigin
})
export type RolloutRecord = typeof RolloutRecord.Type

/** `queued` until its turn, `changing` while under way, `waiting` if a process from before still runs. */
export const RolloutPhase = Schema.Literals(["queued", "changing", "waiting", "done", "failed"])
export type RolloutPhase = typeof RolloutPhase.Type

export const RolloutServer = Schema.Struct({
  rollout_id: Schema.String,
  server_id: ServerId,
  position: Schema.Int,
  phase: RolloutPhase,
  /** One more at each repetition and at the rollback: a step of an earlier attempt changes nothing. */
  attempt: Schema.Int,
  /** The revision that the server gets, and the one that it had. */
  target: Schema.String,
  earlier: Schema.String,
  /** Whether the server must be up afterwards; null: the attempt has not begun. */
  was_up: Schema.NullOr(Schema.Boolean),
  stopped: Schema.Boolean,
  /** When it has got the line before its restart, in milliseconds since the epoch, if ever. */
  notified_at: Schema.NullOr(Schema.Int),
  /** Milliseconds since the epoch. */
  restarted_at: Schema.NullOr(Schema.Int),
  crash_before: Schema.NullOr(Schema.String),
  reason: Schema.NullOr(Schema.String)
})
export type RolloutServer = typeof RolloutServer.Type

export type RolloutCounts = Readonly<Record<RolloutPhase, number>>

export const RolloutFailure = Schema.Struct({ server_id: ServerId, reason: Schema.String }).annotate({
  identifier: "RolloutFailure"
})

export const Rollout = Schema.Struct({
  id: Schema.String,
  state: RolloutState,
  reason: Schema.optionalKey(Schema.String),
  ...RolloutSettings.fields,
  ...RolloutOrigin.fields,
  total: Schema.Int,
  /** Servers that have the definition, are deleted, or have left the limits of the key that has created the rollout. */
  done: Schema.Int,
  under_way: Schema.Int,
  /** Servers that get the definition at their next start. */
  waiting: Schema.Int,
  /** Only of a rollback: servers that have their earlier definition again. */
  rolled_back: Schema.optionalKey(Schema.Int),
  /** The first 100. */
  failed: Schema.Array(RolloutFailure),
  failed_total: Schema.Int,
  created_at: TimeText,
  finished_at: Schema.optionalKey(TimeText)
}).annotate({ identifier: "Rollout" })
export type Rollout = typeof Rollout.Type

export const RolloutPlan = Schema.Struct({
  total: Schema.Int,
  /** Servers that have the definition already. */
  up_to_date: Schema.Int,
  /** The other servers, or a page of them, in the order in which the rollout changes them. */
  servers: Schema.Array(
    Schema.Struct({
      server_id: ServerId,
      changes: Schema.Array(DefinitionChange),
      problem: Schema.optionalKey(Schema.String)
    }).annotate({ identifier: "PlannedChange" })
  )
}).annotate({ identifier: "RolloutPlan" })
export type RolloutPlan = typeof RolloutPlan.Type
