/** The drain of a node whose saved servers migrate to other nodes. */
import { Schema } from "effect"
import { ConsoleLine } from "./ConsoleLine.ts"
import { NodeId, ServerId } from "./Id.ts"

const WEEK = 7 * 24 * 60 * 60

export const drainOptions = {
  parallel: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 50 })),
  /** Seconds until the servers that remain leave at once, and those that cannot leave are stopped. */
  deadline: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: WEEK })),
  notify: ConsoleLine.check(Schema.isNonEmpty()),
  /** Seconds between the line and the stop. */
  notify_seconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3600 }))
} as const

export const NOTIFY_SECONDS = 10

export const noticeMillis = (seconds: number | null | undefined): number => (seconds ?? NOTIFY_SECONDS) * 1000

export const Drain = Schema.Struct({
  node_id: NodeId,
  /** RFC 3339 UTC; servers that were created later stay. */
  asked_at: Schema.String,
  parallel: Schema.NullOr(Schema.Int),
  /** RFC 3339 UTC. */
  deadline_at: Schema.NullOr(Schema.String),
  notify: Schema.NullOr(Schema.String),
  notify_seconds: Schema.NullOr(Schema.Int),
  /** Whether the servers that the deadline stops have got the line. */
  notified: Schema.Boolean
})
export type Drain = typeof Drain.Type

export type DrainChoices = Partial<Omit<Drain, "node_id" | "asked_at" | "notified">>

/** Bounds the servers of a plan, and the servers of each of its reasons. */
export const MOST_PLANNED = 1000

export const DrainPlan = Schema.Struct({
  /** The first 1,000 of the servers that would migrate, in their order, with their destinations. */
  migrations: Schema.Array(Schema.Struct({ server_id: ServerId, to: NodeId, to_name: Schema.String })),
  migrations_total: Schema.Int,
  /** The servers that would stay, by the reason. */
  blocked: Schema.Array(
    Schema.Struct({
      reason: Schema.String,
      total: Schema.Int,
      server_ids: Schema.Array(ServerId)
    })
  ),
  /** Servers that are not saved: they stay until they stop. */
  running_out: Schema.Int
}).annotate({ identifier: "DrainPlan" })
export type DrainPlan = typeof DrainPlan.Type
