import { Schema, Struct } from "effect"
import { PortName } from "./Allocation.ts"
import { Copy, Mount, PlacementRule, RestartRule, Volume } from "./Blueprint.ts"
import { ConfigPatches } from "./ConfigPatch.ts"
import { Limits } from "./Limits.ts"
import { RuntimeKind } from "./Node.ts"
import { RunPriority, RunRule } from "./Run.ts"
import { DEFAULT_STOP_TIMEOUT, InstallScript, ProcessConfiguration } from "./Software.ts"

/**
 * The definition of one server: blueprint, software and overrides, resolved at creation. The record keeps it, so that a
 * reload never changes a server (spec 4).
 */
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
  /** The names of the ports, in order; absent: they have none. */
  port_names: Schema.optionalKey(Schema.Array(PortName)),
  /** The software's patches, then the blueprint's, then the overrides', by file, then by key. */
  configs: ConfigPatches,
  volumes: Schema.Array(Volume),
  mounts: Schema.Array(Mount),
  copy: Schema.Array(Copy),
  env: Schema.Record(Schema.String, Schema.String),
  runtimes: Schema.Array(RuntimeKind),
  placement: PlacementRule,
  restart: RestartRule,
  /** Absent if the server has no rule; see `runRuleOf`. */
  run: Schema.optionalKey(RunRule),
  priority: Schema.optionalKey(RunPriority),
  save: Schema.Boolean
}).annotate({ identifier: "ServerDefinition" })
export type ServerDefinition = typeof ServerDefinition.Type

/** The parts of a definition that callers see: all that other routes show of blueprints and servers. */
export const DefinitionView = Schema.Struct({
  ...Struct.omit(ServerDefinition.fields, ["configs", "install_script", "process"]),
  stop_timeout: Schema.Finite
}).annotate({ identifier: "Definition" })
export type DefinitionView = typeof DefinitionView.Type

/** Config patches and the command line are left out: no other route of a blueprint or server shows them. */
export const definitionView = (definition: ServerDefinition): DefinitionView => {
  const { configs: _configs, install_script: _script, process: _process, ...shown } = definition
  return { ...shown, stop_timeout: stopTimeoutOf(definition) }
}

/** Returns the seconds from a stop of the server to its kill. */
export const stopTimeoutOf = ({ process }: Pick<ServerDefinition, "process">): number =>
  process.stop_timeout ?? DEFAULT_STOP_TIMEOUT
