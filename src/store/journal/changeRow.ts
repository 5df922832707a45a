/** The columns of a {@link Change} in the table `journal`: each topic keeps the form that the first version wrote. */

import { Effect, Predicate, Schema } from "effect"
import { Allocations } from "../../domain/Allocation.ts"
import { CrashSummary } from "../../domain/CrashRecord.ts"
import { NodeId, ServerId } from "../../domain/Id.ts"
import { InstallState } from "../../domain/InstallState.ts"
import type { Change } from "../../domain/Journal.ts"
import { Migration } from "../../domain/Migration.ts"
import { Problem } from "../../domain/Problem.ts"
import { RestartState } from "../../domain/Restart.ts"
import { RunState } from "../../domain/Run.ts"
import { Crash } from "../../domain/ServerEvent.ts"
import { ServerStatus } from "../../domain/ServerStatus.ts"
import { WebhookId } from "../../domain/Webhook.ts"
import { isPlainInstall } from "../sql/plainColumns.ts"

const row = <const T extends Change["topic"], A, I>(topic: T, payload: Schema.Codec<A, I>) =>
  Schema.Struct({ topic: Schema.Literal(topic), server_id: ServerId, payload })

/** A row that is about no server: its `server_id` is empty. */
const otherRow = <const T extends Change["topic"], A, I>(topic: T, payload: Schema.Codec<A, I>) =>
  Schema.Struct({ topic: Schema.Literal(topic), server_id: Schema.String, payload })

const ChangeRow = Schema.Union([
  row("status", ServerStatus),
  row("crash", Crash),
  row("deleted", Schema.Null),
  row("server:created", Schema.Null),
  row("server:changed", Schema.Null),
  row("server:crash-recorded", CrashSummary),
  row("server:expiring", Schema.String),
  row("server:install", InstallState),
  row("server:start-pending", Schema.Boolean),
  row("server:transient", Schema.Boolean),
  row("server:problem", Schema.NullOr(Problem)),
  row("server:restart", Schema.NullOr(RestartState)),
  row("server:run", Schema.NullOr(RunState)),
  row("server:placed", Schema.Struct({ node_id: NodeId, allocations: Allocations })),
  row("server:move", Schema.NullOr(Migration)),
  row("server:left", NodeId),
  row("server:suspect", Schema.Null),
  otherRow(
    "node:changed",
    Schema.Struct({
      node_id: NodeId,
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
  ),
  otherRow("node:reach", NodeId),
  otherRow("node:evacuation", NodeId),
  otherRow("key:changed", Schema.Null),
  otherRow(
    "definitions:reloaded",
    Schema.Struct({ folder: Schema.Literals(["blueprints", "software"]), origin: Schema.String })
  ),
  otherRow("ticket:reopened", Schema.Struct({ ticket: Schema.String, times_opened: Schema.Int })),
  otherRow("rollout:changed", Schema.String),
  otherRow("webhook:changed", WebhookId),
  otherRow("unknown:change", Schema.Null)
])
export type ChangeRow = typeof ChangeRow.Type

const topics: ReadonlySet<string> = new Set(ChangeRow.members.map(({ fields }) => fields.topic.literal))
const decodeKnown = Schema.decodeUnknownEffect(ChangeRow)
const encode = Schema.encodeEffect(ChangeRow)

/** Returns the columns of a change, with the payload before its encoding as JSON. */
export const changeRow = (change: Change): ChangeRow => {
  switch (change.topic) {
    case "node:changed":
      return { topic: change.topic, server_id: "", payload: { node_id: change.node_id, kind: change.kind } }
    case "node:reach":
    case "node:evacuation":
      return { topic: change.topic, server_id: "", payload: change.node_id }
    case "webhook:changed":
      return { topic: change.topic, server_id: "", payload: change.webhook_id }
    case "definitions:reloaded":
      return { topic: change.topic, server_id: "", payload: { folder: change.folder, origin: change.origin } }
    case "ticket:reopened":
      return {
        topic: change.topic,
        server_id: "",
        payload: { ticket: change.ticket, times_opened: change.times_opened }
      }
    case "rollout:changed":
      return { topic: change.topic, server_id: "", payload: change.rollout_id }
    case "key:changed":
    case "unknown:change":
      return { topic: change.topic, server_id: "", payload: null }
    default:
      return change
  }
}

const changeOf = (row: ChangeRow): Change => {
  switch (row.topic) {
    case "node:changed":
      return { topic: row.topic, ...row.payload }
    case "node:reach":
    case "node:evacuation":
      return { topic: row.topic, node_id: row.payload }
    case "webhook:changed":
      return { topic: row.topic, webhook_id: row.payload }
    case "definitions:reloaded":
      return { topic: row.topic, ...row.payload }
    case "ticket:reopened":
      return { topic: row.topic, ...row.payload }
    case "rollout:changed":
      return { topic: row.topic, rollout_id: row.payload }
    case "key:changed":
    case "unknown:change":
      return { topic: row.topic }
    default:
      return row
  }
}

/** Encodes a change; one that does not fit its topic is a defect. A payload without fields needs no schema. */
export const encodeChange = (change: Change): Effect.Effect<unknown> => {
  const row = changeRow(change)
  const isPlain =
    !Predicate.isObject(row.payload) || (row.topic === "server:install" && isPlainInstall(row.payload))
  return isPlain ? Effect.succeed(row) : Effect.orDie(encode(row))
}

/** Decodes a row. An internal topic of a newer version becomes `unknown:change`; the public topics never change. */
export const decodeChange = (stored: { readonly topic: string }): Effect.Effect<Change> =>
  stored.topic.includes(":") && !topics.has(stored.topic)
    ? Effect.succeed({ topic: "unknown:change" })
    : Effect.map(Effect.orDie(decodeKnown(stored)), changeOf)
