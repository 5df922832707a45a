import { Schema } from "effect"

/** The step after which a change has taken effect: none, the next start, or an installation and the next start. */
export const Needs = Schema.Literals(["nothing", "restart", "installation"])
export type Needs = typeof Needs.Type

/**
 * A changed value, null if absent. `path` is like `configs["server.properties"].find.motd`: brackets enclose other
 * names than `A-Za-z0-9_-`.
 */
export const DefinitionChange = Schema.Struct({
  path: Schema.String,
  from: Schema.Json,
  to: Schema.Json,
  needs: Needs
}).annotate({ identifier: "DefinitionChange" })
export type DefinitionChange = typeof DefinitionChange.Type
