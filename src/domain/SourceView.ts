import { Schema } from "effect"

/** A git repository whose definitions are synced, as its route shows it: what is set, and what came of it. */
export const SourceView = Schema.Struct({
  id: Schema.String,
  kind: Schema.Literals(["blueprints", "software"]),
  /** Without user and password. */
  url: Schema.String,
  /** null: the remote's HEAD. */
  ref: Schema.NullOr(Schema.String),
  path: Schema.String,
  destination: Schema.String,
  /** The commit whose files are in place; null: none yet. */
  commit: Schema.NullOr(Schema.String),
  /** When they were put there, RFC 3339. */
  synced_at: Schema.NullOr(Schema.String),
  /** Why the last sync failed; null: it did not. */
  error: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Source" })
export type SourceView = typeof SourceView.Type

/** Something about the definitions of a folder that should be looked at: one line. */
export const DefinitionWarning = Schema.Struct({
  folder: Schema.Literals(["blueprints", "software"]),
  detail: Schema.String
}).annotate({ identifier: "DefinitionWarning" })
export type DefinitionWarning = typeof DefinitionWarning.Type
