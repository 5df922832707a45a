/** Entries of the audit log (spec 6.6). */
import { Schema } from "effect"
import { KeyScope } from "./Key.ts"
import { TimeText } from "./nowText.ts"

export const auditIdPattern = /^[0-9a-f]{32}$/

export const AuditEntry = Schema.Struct({
  id: Schema.String,
  /** The arrival of the request. */
  at: TimeText,
  /** The key of the caller. Without a key: `cli`, a command beside the service, or `service` itself. */
  actor: Schema.Struct({
    key_id: Schema.NullOr(Schema.String),
    name: Schema.String,
    scope: Schema.NullOr(KeyScope)
  }),
  /** The address of the caller; null: a command or the service. */
  client: Schema.NullOr(Schema.String),
  /** Null for a command and for the service. */
  request_id: Schema.NullOr(Schema.String),
  action: Schema.String,
  object: Schema.Struct({
    kind: Schema.String,
    /** Null if the action has no object or several ones, or if the object was not created. */
    id: Schema.NullOr(Schema.String),
    /** The name of a server at the time. */
    name: Schema.optionalKey(Schema.String),
    count: Schema.optionalKey(Schema.Int)
  }),
  /** Names of the fields that the request changes, at most 100; never their values. */
  changes: Schema.Array(Schema.String),
  /** Of actions on files of a server: their paths, at most 100. A long path is cut. */
  paths: Schema.optionalKey(Schema.Array(Schema.String)),
  /** The status of the response; 499: the caller closed the connection first. */
  result: Schema.Struct({ status: Schema.Int }),
  /** Of refused requests and tickets that share an entry: their number. */
  repeated: Schema.optionalKey(Schema.Int),
  /** Of the actor `service`: why it acted. */
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "AuditEntry" })
export type AuditEntry = typeof AuditEntry.Type
