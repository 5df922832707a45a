import { Schema } from "effect"
import { ExitCode, NodeText } from "./NodeText.ts"
import { ServerStatus } from "./ServerStatus.ts"

/** Names of the three public topics (contract 6.2). */
export const Topic = Schema.Literals(["status", "crash", "deleted"])
export type Topic = typeof Topic.Type

/** Payload of a `crash` event; `timestamp` is RFC 3339 in UTC with milliseconds. */
export const Crash = Schema.Struct({
  reason: NodeText,
  exit_code: ExitCode,
  timestamp: NodeText
}).annotate({ identifier: "Crash" })
export type Crash = typeof Crash.Type

const data = <S extends Schema.Top>(payload: S) => Schema.Struct({ server_id: Schema.String, payload })

/** Message shape of both streams (contract 6.1); `Cursor` only if the caller asked to resume. */
export const ServerEvent = Schema.Union([
  Schema.Struct({
    Topic: Schema.Literal("status"),
    Data: data(ServerStatus),
    Cursor: Schema.optionalKey(Schema.Int)
  }),
  Schema.Struct({
    Topic: Schema.Literal("crash"),
    Data: data(Crash),
    Cursor: Schema.optionalKey(Schema.Int)
  }),
  Schema.Struct({
    Topic: Schema.Literal("deleted"),
    Data: data(Schema.Null),
    Cursor: Schema.optionalKey(Schema.Int)
  })
]).annotate({ identifier: "ServerEvent" })
export type ServerEvent = typeof ServerEvent.Type
