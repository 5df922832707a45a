/** The restarts of a crashed server (spec 3.9). */
import { Schema } from "effect"
import { NodeCount, NodeText } from "./NodeText.ts"

/** A restart that is pending, `next_at` in RFC 3339; or the reason why there is none any more. */
export const RestartState = Schema.Union([
  Schema.Struct({ attempt: NodeCount, next_at: NodeText }).annotate({ identifier: "PendingRestart" }),
  Schema.Struct({ given_up: Schema.Literal(true), reason: NodeText }).annotate({ identifier: "NoRestart" })
]).annotate({ identifier: "RestartState" })
export type RestartState = typeof RestartState.Type

/** Whether a restart is pending. */
export const isRestartPending = (
  restart: RestartState | null | undefined
): restart is Extract<RestartState, { readonly next_at: string }> =>
  restart !== null && restart !== undefined && "next_at" in restart
