import { Schema } from "effect"
import { TimeText } from "./nowText.ts"

/** A git repository of definitions, as its route shows it: the settings and the last result. */
export const SourceView = Schema.Struct({
  id: Schema.String,
  kind: Schema.Literals(["blueprints", "software"]),
  url: Schema.String,
  ref: Schema.NullOr(Schema.String),
  path: Schema.String,
  destination: Schema.String,
  /** The commit whose files are in place, if any. */
  commit: Schema.NullOr(Schema.String),
  synced_at: Schema.NullOr(TimeText),
  /** The reason why the last sync failed, if it did. */
  error: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Source" })
export type SourceView = typeof SourceView.Type

/** A warning about the definitions of a folder, in one line. */
export const DefinitionWarning = Schema.Struct({
  folder: Schema.Literals(["blueprints", "software"]),
  detail: Schema.String
}).annotate({ identifier: "DefinitionWarning" })
export type DefinitionWarning = typeof DefinitionWarning.Type
