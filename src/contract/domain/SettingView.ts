import { Schema } from "effect"

/** A setting as people see it. */
export const SettingView = Schema.Struct({
  /** The environment variable; of a secret from a file, the one that names the file. */
  name: Schema.String,
  /** Null for a secret that is set. */
  value: Schema.NullOr(Schema.String),
  source: Schema.Literals(["default", "environment", "file"])
}).annotate({ identifier: "Setting" })
export type SettingView = typeof SettingView.Type
