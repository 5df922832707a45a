import { Schema } from "effect"

/**
 * The step after which a change has taken effect:
 *
 * - `nothing`       it takes effect at once
 * - `restart`       the next start of the server
 * - `installation`  an installation, which changes the base folder, then the next start
 */
export const Needs = Schema.Literals(["nothing", "restart", "installation"])
export type Needs = typeof Needs.Type

/**
 * A changed value. `path` is its place in the definition, such as `limits.memory_limit` or
 * `configs["server.properties"].find.motd`: brackets enclose names with other characters than `A-Za-z0-9_-`. `from`, `to`:
 * null if the value is absent.
 */
export const DefinitionChange = Schema.Struct({
  path: Schema.String,
  from: Schema.Json,
  to: Schema.Json,
  needs: Needs
}).annotate({ identifier: "DefinitionChange" })
export type DefinitionChange = typeof DefinitionChange.Type
