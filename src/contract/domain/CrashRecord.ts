/** Records of crashes (spec 3.18). */
import { Schema } from "effect"
import { cleanText, ExitCode, NodeText, NodeTime } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import { RestartState } from "./RunRule.ts"

export const CRASH_LINES = 200

const CRASH_BYTES = 65_536

const encoder = new TextEncoder()

/** Cleans the last console lines and cuts the oldest, so that a record has a bounded size. */
export const crashLines = (lines: ReadonlyArray<string>): ReadonlyArray<string> => {
  const kept: Array<string> = []
  let bytes = 0
  for (const line of lines.slice(-CRASH_LINES).toReversed()) {
    const text = cleanText(line)
    bytes += encoder.encode(text).length
    if (bytes > CRASH_BYTES) break
    kept.unshift(text)
  }
  return kept
}

/** The circumstances of a crash that only its node knows. */
export const CrashDetails = Schema.Struct({
  started_at: NodeTime,
  restart: Schema.optionalKey(RestartState),
  lines: Schema.Array(NodeText).check(Schema.isMaxLength(CRASH_LINES))
})
export type CrashDetails = typeof CrashDetails.Type

const fields = {
  id: Schema.String,
  server_id: Schema.String,
  server_name: Schema.optionalKey(Schema.String),
  blueprint_id: Schema.String,
  node_id: Schema.String,
  version: Schema.String,
  reason: Schema.String,
  exit_code: ExitCode,
  signal: Schema.optionalKey(Schema.String),
  out_of_memory: Schema.Boolean,
  /** RFC 3339; null: the node did not report it. */
  started_at: Schema.NullOr(TimeText),
  crashed_at: TimeText,
  uptime_seconds: Schema.NullOr(Schema.Finite),
  /** The restart that follows, or why there is none any more; null: the server is not restarted after crashes. */
  restart: Schema.NullOr(RestartState)
}

export const CrashSummary = Schema.Struct(fields).annotate({ identifier: "CrashSummary" })
export type CrashSummary = typeof CrashSummary.Type

export const CrashRecord = Schema.Struct({ ...fields, lines: Schema.Array(Schema.String) }).annotate({
  identifier: "CrashRecord"
})
export type CrashRecord = typeof CrashRecord.Type
