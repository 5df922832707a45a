import { Schema, Struct } from "effect"
import { PortName } from "./Allocation.ts"
import { Copy, Mount, PlacementRule, RestartRule, Volume } from "./Blueprint.ts"
import { ConfigPatches } from "./ConfigPatch.ts"
import { FileRules } from "./Files.ts"
import { Limits } from "./Limits.ts"
import { RuntimeKind } from "./Node.ts"
import { RunPriority, RunRule } from "./RunRule.ts"
import { DEFAULT_STOP_TIMEOUT, InstallScript, ProcessConfiguration } from "./Software.ts"

/** The definition of one server, resolved at creation and kept, so that no reload changes a server (spec 4). */
export const ServerDefinition = Schema.Struct({
  blueprint_id: Schema.String,
  software: Schema.String,
  version: Schema.String,
  /** Image reference; empty for software that has no images (process runtime only). */
  image: Schema.String,
  process: ProcessConfiguration,
  install_script: Schema.NullOr(InstallScript),
  limits: Limits,
  ports: Schema.Int,
  port_names: Schema.optionalKey(Schema.Array(PortName)),
  /** The software's patches, then the blueprint's, then the overrides', by file, then by key. */
  configs: ConfigPatches,
  volumes: Schema.Array(Volume),
  mounts: Schema.Array(Mount),
  copy: Schema.Array(Copy),
  env: Schema.Record(Schema.String, Schema.String),
  files: Schema.optionalKey(FileRules),
  runtimes: Schema.Array(RuntimeKind),
  placement: PlacementRule,
  restart: RestartRule,
  run: Schema.optionalKey(RunRule),
  priority: Schema.optionalKey(RunPriority),
  save: Schema.Boolean
}).annotate({ identifier: "ServerDefinition" })
export type ServerDefinition = typeof ServerDefinition.Type

/** The parts of a definition that other routes show to callers. */
export const DefinitionView = Schema.Struct({
  ...Struct.omit(ServerDefinition.fields, ["configs", "install_script", "process"]),
  stop_timeout: Schema.Finite
}).annotate({ identifier: "Definition" })
export type DefinitionView = typeof DefinitionView.Type

/** Leaves out config patches and the command line, which no other route shows. */
export const definitionView = (definition: ServerDefinition): DefinitionView => {
  const { configs: _configs, install_script: _script, process: _process, ...shown } = definition
  return { ...shown, stop_timeout: stopTimeoutOf(definition) }
}

export const stopTimeoutOf = ({ process }: Pick<ServerDefinition, "process">): number =>
  process.stop_timeout ?? DEFAULT_STOP_TIMEOUT

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
