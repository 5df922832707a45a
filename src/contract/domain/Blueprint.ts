import { Schema } from "effect"
import { PortName } from "./Allocation.ts"
import { BackupRule } from "./BackupTarget.ts"
import { ConfigPatches } from "./ConfigPatch.ts"
import { FileRules } from "./Files.ts"
import { DefinitionId } from "./Id.ts"
import { Limits } from "./Limits.ts"
import { TimeText } from "./nowText.ts"
import { RunPriority, RunRule } from "./RunRule.ts"
import { BlueprintSchedule } from "./Schedule.ts"
import { StopTimeout } from "./Software.ts"

/** A named volume of an instance: `source` below the daemon's volumes folder, `target` inside the instance. */
export const Volume = Schema.Struct({
  name: Schema.String,
  source: Schema.String,
  target: Schema.String,
  mode: Schema.Literals(["cow", "rw", "ro"])
}).annotate({ identifier: "Volume" })
export type Volume = typeof Volume.Type

/** A host path in the instance; allowed only below the daemon's allowed mounts. */
export const Mount = Schema.Struct({
  source: Schema.String,
  target: Schema.String,
  mode: Schema.Literals(["rw", "ro"])
}).annotate({ identifier: "Mount" })
export type Mount = typeof Mount.Type

/**
 * A file or folder to copy. `source`: below the data folder or an allowed mount; `target`: relative to the instance.
 */
export const Copy = Schema.Struct({
  source: Schema.String,
  target: Schema.String,
  /** Whether it is copied when the instance is made (default), or before each start. */
  when: Schema.optionalKey(Schema.Literals(["create", "start"]))
}).annotate({ identifier: "Copy" })
export type Copy = typeof Copy.Type

/** Files and environment of an instance, shorthands expanded. */
export const BlueprintState = Schema.Struct({
  volumes: Schema.Array(Volume),
  mounts: Schema.Array(Mount),
  copy: Schema.Array(Copy),
  env: Schema.Record(Schema.String, Schema.String)
}).annotate({ identifier: "BlueprintState" })
export type BlueprintState = typeof BlueprintState.Type

/** The nodes that may run the server; empty `locations`: any. */
export const PlacementRule = Schema.Struct({
  locations: Schema.Array(Schema.String),
  anti_affinity: Schema.Boolean
}).annotate({ identifier: "PlacementRule" })
export type PlacementRule = typeof PlacementRule.Type

/** Restart after a crash, only with `save: true`. The delay, in seconds, doubles with each crash. */
export const RestartRule = Schema.Struct({
  on_crash: Schema.Boolean,
  delay: Schema.optionalKey(Schema.Finite),
  max_delay: Schema.optionalKey(Schema.Finite),
  max_per_hour: Schema.Int,
  /** Seconds after which the delay of a running server starts over. */
  reset_after: Schema.optionalKey(Schema.Finite)
}).annotate({ identifier: "RestartRule" })

/** The back-off of blueprints and definitions that give none, in seconds. */
export const DEFAULT_BACKOFF = { delay: 5, max_delay: 300, reset_after: 600 } as const

/** A blueprint after composition with its mixins (spec 4.2). */
export const Blueprint = Schema.Struct({
  id: DefinitionId,
  name: Schema.String,
  type: Schema.String,
  software: Schema.String,
  version: Schema.String,
  /** As written: a key of the software's images, or an image reference. If it is absent, the mappings of the software decide. */
  image: Schema.optionalKey(Schema.String),
  limits: Limits,
  ports: Schema.Int,
  port_names: Schema.optionalKey(Schema.Array(PortName)),
  stop_timeout: Schema.optionalKey(StopTimeout),
  configs: ConfigPatches,
  placement: PlacementRule,
  restart: RestartRule,
  run: Schema.optionalKey(RunRule),
  priority: Schema.optionalKey(RunPriority),
  state: Schema.NullOr(BlueprintState),
  /** Variables that overrides may set although they change how programs run: names, or prefixes that end with `*`. */
  env_allow: Schema.Array(Schema.String),
  files: Schema.optionalKey(FileRules),
  backup: Schema.optionalKey(BackupRule),
  schedules: Schema.optionalKey(Schema.Array(BlueprintSchedule)),
  save: Schema.Boolean,
  start: Schema.optionalKey(Schema.Boolean),
  annotations: Schema.Record(Schema.String, Schema.Json)
})
export type Blueprint = typeof Blueprint.Type

/** JSON form of a blueprint (spec 4.1). `image` is the resolved reference; empty: no mapping matches. */
export const BlueprintView = Schema.Struct({
  metadata: Schema.Struct({ id: Schema.String, name: Schema.String, type: Schema.String }),
  server: Schema.Struct({
    software: Schema.String,
    version: Schema.String,
    image: Schema.String,
    limits: Limits
  }),
  state: Schema.NullOr(BlueprintState),
  files: Schema.optionalKey(FileRules),
  backup: Schema.optionalKey(BackupRule),
  schedules: Schema.optionalKey(Schema.Array(BlueprintSchedule)),
  save: Schema.Boolean,
  start: Schema.optionalKey(Schema.Boolean),
  annotations: Schema.Record(Schema.String, Schema.Json)
}).annotate({ identifier: "Blueprint" })
export type BlueprintView = typeof BlueprintView.Type

/** JSON form of a mixin: the content of its file, before composition. */
export const MixinView = Schema.Struct({
  id: Schema.String,
  description: Schema.String,
  extends: Schema.Array(Schema.String),
  server: Schema.Record(Schema.String, Schema.Json),
  state: Schema.NullOr(BlueprintState),
  files: Schema.optionalKey(FileRules),
  backup: Schema.optionalKey(BackupRule),
  schedules: Schema.optionalKey(Schema.Array(BlueprintSchedule)),
  annotations: Schema.Record(Schema.String, Schema.Json),
  mixin: Schema.Struct({ id: Schema.String, description: Schema.String })
}).annotate({ identifier: "Mixin" })
export type MixinView = typeof MixinView.Type

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
