import { Schema } from "effect"
import { ConfigPatches } from "./ConfigPatch.ts"
import { DefinitionId } from "./Id.ts"
import { Limits } from "./Limits.ts"
import { RuntimeKind } from "./Node.ts"
import { QuiesceRule } from "./Quiesce.ts"
import { inUnit } from "./units.ts"

/** Install script, run once per software and version on a node (spec 4.6); times in seconds. */
export const InstallScript = Schema.Struct({
  entrypoint: Schema.String,
  script: Schema.String,
  skip_scripts: Schema.Boolean,
  timeout: Schema.Finite,
  warmup: Schema.Boolean,
  warmup_timeout: Schema.Finite,
  warmup_retries: Schema.Int,
  warmup_failure_policy: Schema.Literals(["fail", "ignore"]),
  post_warmup_script: Schema.String,
  post_warmup_timeout: Schema.Finite
}).annotate({ identifier: "InstallScript" })
export type InstallScript = typeof InstallScript.Type

/** The meaning of an exit with code 0 that nothing asked for. */
export const CleanExit = Schema.Literals(["crash", "stop"])

/** Seconds from a stop to the kill of a process that still runs. */
export const StopTimeout = Schema.Finite.check(
  Schema.isBetween({ minimum: 1, maximum: 3600 }, inUnit("a number of seconds"))
)
/** The {@link StopTimeout} of software that gives none, in seconds. */
export const DEFAULT_STOP_TIMEOUT = 30

export const ProcessConfiguration = Schema.Struct({
  invocation: Schema.String,
  /** A console line, or a signal such as `^C` or `^SIGTERM`. */
  stop_command: Schema.String,
  /** Part of a console line, or `regex:...`; absent: the server is online once its process runs. */
  online_signal: Schema.optionalKey(Schema.String),
  /** Seconds to reach the online signal. */
  start_timeout: Schema.Finite,
  stop_timeout: Schema.optionalKey(StopTimeout),
  clean_exit: CleanExit,
  /** Whether the process has a pseudo-terminal; by default it has none. */
  terminal: Schema.optionalKey(Schema.Boolean)
}).annotate({ identifier: "ProcessConfiguration" })
export type ProcessConfiguration = typeof ProcessConfiguration.Type

/** One line of a version mapping: image key -> range; `default` is the key used when none matches. */
export const VersionMapping = Schema.Struct({ image: Schema.String, range: Schema.String })

/** Software after its file was read, as `GET /api/software` shows it. */
export const Software = Schema.Struct({
  id: DefinitionId,
  name: Schema.String,
  images: Schema.Record(Schema.String, Schema.String),
  mappings: Schema.Array(VersionMapping),
  process: ProcessConfiguration,
  install_script: Schema.NullOr(InstallScript),
  limits: Limits,
  configs: ConfigPatches,
  runtimes: Schema.Array(RuntimeKind),
  /** How its servers hold still for backups (spec 12.10). */
  quiesce: Schema.optionalKey(QuiesceRule)
}).annotate({ identifier: "Software" })
export type Software = typeof Software.Type
