/** Backups of the files of servers (spec 12). */
import { Schema, Struct } from "effect"
import { BackupTargetId } from "./BackupTarget.ts"
import { FilePath } from "./Files.ts"
import { OperationId } from "./FileTask.ts"
import { DefinitionId, NodeId, ServerId } from "./Id.ts"
import { ExpiresIn, Labels, PrintableText } from "./Labels.ts"
import { NodeCount, NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import { OperationProgress } from "./Operation.ts"
import { Overrides } from "./Overrides.ts"
import { optionalInput } from "./optionalInput.ts"
import { Quiesce, QuiesceMode } from "./Quiesce.ts"
import { nullOr } from "./units.ts"

export const BackupState = Schema.Literals(["queued", "quiescing", "copying", "done", "failed", "deleting"])
export type BackupState = typeof BackupState.Type

/** Whether the server wrote while its files were read (spec 12.2). */
export const Consistency = Schema.Literals(["stopped", "quiesced", "paused", "crash"])

/** `written`: what the server has written over its base. `full`: all of its files (spec 12.12). */
export const BackupKind = Schema.Literals(["written", "full"])
export type BackupKind = typeof BackupKind.Type

const Sha256 = Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "SHA-256 in hex" }))

/** The base of a backup, which its target stores once. */
export const BackupBase = Schema.Struct({
  software: Schema.String,
  version: Schema.String,
  /** SHA-256 of the entries of the base, in hex. */
  digest: Sha256
}).annotate({ identifier: "BackupBase" })

/** The figures of the archive of a finished backup. */
export const PackedFigures = Schema.Struct({
  /** Regular files, and how many of them changed while they were read. */
  files: NodeCount,
  changed_files: NodeCount,
  /** Bytes of the contents, and of the parts. */
  size_bytes: NodeCount,
  stored_bytes: NodeCount,
  /** SHA-256 of the archive, in hex. */
  sha256: Sha256,
  /** Default `full`. */
  kind: Schema.optionalKey(BackupKind),
  /** The base of the kind `written`: SHA-256 of its entries, in hex. */
  base: Schema.optionalKey(BackupBase),
  consistency: Consistency,
  /** Milliseconds for which the server held still for the backup (spec 12.10). */
  quiesced_ms: Schema.optionalKey(NodeCount)
})

export type PackedFigures = typeof PackedFigures.Type

/** The figures of a finished backup, as its node reports them. */
export const BackupFigures = Schema.Struct({
  ...PackedFigures.fields,
  /** SHA-256 of the manifest, in hex: others may write where it is stored (spec 12.6). */
  manifest_sha256: Sha256
})
export type BackupFigures = typeof BackupFigures.Type

const figures = Struct.map(PackedFigures.fields, Schema.optionalKey)

/** The result of a drill or a verification of a backup. Only one that is not `ok` has a reason. */
export const BackupCheck = Schema.Struct({
  at: TimeText,
  ok: Schema.Boolean,
  reason: Schema.optionalKey(NodeText)
}).annotate({ identifier: "BackupCheck" })
export type BackupCheck = typeof BackupCheck.Type

/** The schedule that made a backup, with its name of that time (spec 12.1). */
export const BackupSchedule = Schema.Struct({ id: Schema.String, name: Schema.String }).annotate({
  identifier: "BackupSchedule"
})

/** A backup as callers see it (spec 12.1). */
export const Backup = Schema.Struct({
  id: Schema.String,
  server_id: ServerId,
  /** Name, blueprint and labels of the server when the backup began. */
  server_name: Schema.optionalKey(Schema.String),
  blueprint_id: DefinitionId,
  name: Schema.optionalKey(Schema.String),
  labels: Labels,
  state: BackupState,
  /** The id of the target that stores it (spec 12.6). */
  target: BackupTargetId,
  /** The node that made it, and that stores it if the target is `node`. */
  node_id: NodeId,
  /** The operation that makes it. */
  operation_id: Schema.String,
  ...figures,
  pinned: Schema.Boolean,
  expires_at: Schema.optionalKey(TimeText),
  created_at: TimeText,
  finished_at: Schema.optionalKey(TimeText),
  /** Why it failed. */
  reason: Schema.optionalKey(NodeText),
  /** The last drill: whether a server of it has been online (spec 12.11). */
  drill: Schema.optionalKey(BackupCheck),
  /** The last verification that could read it. One that is not `ok` has found damage. */
  verified: Schema.optionalKey(BackupCheck),
  schedule: Schema.optionalKey(BackupSchedule)
}).annotate({ identifier: "Backup" })
export type Backup = typeof Backup.Type

/** An entry of a backup, as its index has it. */
export const PackedEntry = Schema.Struct({
  /** Comes first in a line of the index. */
  path: Schema.String,
  type: Schema.Literals(["file", "folder", "link"]),
  mode: Schema.Int,
  /** Seconds since the epoch. */
  mtime: Schema.Int,
  /** Of a link. */
  target: Schema.optionalKey(Schema.String),
  /** Of a file. `at`: where its contents begin in the tar. */
  size: Schema.optionalKey(Schema.Int),
  sha256: Schema.optionalKey(Schema.String),
  at: Schema.optionalKey(Schema.Int)
})
export type PackedEntry = typeof PackedEntry.Type

/** Reads a line of an index, if it is one. */
export const readPackedEntry = Schema.decodeUnknownOption(Schema.fromJsonString(PackedEntry))

/** An entry of a folder of a backup, as callers see it. */
export const BackupEntry = Schema.Struct({
  name: Schema.String,
  type: PackedEntry.fields.type,
  /** Bytes; of a folder 0. */
  size: Schema.Int,
  modified_at: TimeText,
  mode: Schema.String,
  /** Where a link points to. */
  target: Schema.optionalKey(Schema.String),
  /** Of a file. */
  sha256: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "BackupEntry" })
export type BackupEntry = typeof BackupEntry.Type

/** A backup in the database. */
export const BackupRecord = Schema.Struct({
  id: Schema.String,
  server_id: ServerId,
  server_name: Schema.NullOr(Schema.String),
  blueprint_id: Schema.String,
  name: Schema.NullOr(Schema.String),
  labels: Labels,
  /** Of the server when the backup began; a caller of the backup changes neither. */
  server_labels: Labels,
  overrides: Schema.toType(Overrides),
  state: BackupState,
  target: BackupTargetId,
  node_id: NodeId,
  operation_id: Schema.String,
  figures: Schema.NullOr(BackupFigures),
  pinned: Schema.Boolean,
  expires_at: Schema.NullOr(TimeText),
  /** Id of the key that began it. */
  created_by: Schema.NullOr(Schema.String),
  created_at: TimeText,
  finished_at: Schema.NullOr(TimeText),
  reason: Schema.NullOr(Schema.String),
  drill: Schema.NullOr(BackupCheck),
  verified: Schema.NullOr(BackupCheck),
  schedule: Schema.NullOr(BackupSchedule)
})
export type BackupRecord = typeof BackupRecord.Type

/** Returns a backup as callers see it. */
export const shownBackup = (record: BackupRecord): Backup => {
  const {
    created_by: _,
    drill,
    expires_at,
    figures,
    finished_at,
    name,
    overrides: __,
    reason,
    schedule,
    server_labels: ___,
    server_name,
    verified,
    ...same
  } = record
  const { manifest_sha256: ____, ...shown } = figures ?? {}
  return {
    ...same,
    ...(server_name === null ? {} : { server_name }),
    ...(name === null ? {} : { name }),
    ...(figures === null ? {} : { kind: "full" as const }),
    ...shown,
    ...(expires_at === null ? {} : { expires_at }),
    ...(finished_at === null ? {} : { finished_at }),
    ...(reason === null ? {} : { reason }),
    ...(drill === null ? {} : { drill }),
    ...(verified === null ? {} : { verified }),
    ...(schedule === null ? {} : { schedule })
  }
}

const BackupName = PrintableText(128)

/** Body of `POST /api/servers/:server/backups`. */
export const BackupRequest = Schema.Struct({
  name: optionalInput(BackupName),
  target: optionalInput(BackupTargetId),
  kind: optionalInput(
    BackupKind.annotate({
      description:
        "`written`: only what the server has written over its base, which the target stores once. `full`: all files. Default `written` if the node keeps the files of the server as a layer over their base, else `full`."
    })
  ),
  labels: optionalInput(Labels),
  pinned: optionalInput(Schema.Boolean),
  expires_in: optionalInput(ExpiresIn),
  quiesce: optionalInput(
    QuiesceMode.annotate({
      description:
        "How a running server holds still for the copy. `auto`: as its software says. `stop`: it is stopped, and started again. `pause`: its processes are frozen. `none`: it runs on. Default `auto`."
    })
  )
}).annotate({ identifier: "BackupRequest" })
export type BackupRequest = typeof BackupRequest.Type

/** Body of `PATCH /api/backups/:backup`; null removes the name or the expiry. */
export const BackupPatch = Schema.Struct({
  name: Schema.optionalKey(nullOr(BackupName)),
  labels: Schema.optionalKey(Labels),
  pinned: Schema.optionalKey(Schema.Boolean),
  expires_in: Schema.optionalKey(nullOr(ExpiresIn))
}).annotate({ identifier: "BackupPatch" })
export type BackupPatch = typeof BackupPatch.Type

/** Body of `POST /api/backups/:backup/drill`. */
export const DrillRequest = Schema.Struct({
  node_id: optionalInput(
    NodeId.annotate({ description: "The node of the server of the drill; default: as for a creation." })
  )
}).annotate({ identifier: "DrillRequest" })
export type DrillRequest = typeof DrillRequest.Type

/** A backup keeps these facts of its server, so that the server can be made again. */
const BackedUpServer = Schema.Struct({
  server_name: Schema.NullOr(Schema.String),
  blueprint_id: Schema.String,
  labels: Labels,
  overrides: Schema.Json
})

/** The creation of a backup, on the node of its server. */
export const CreateTask = Schema.Struct({
  kind: Schema.Literal("create"),
  backup_id: OperationId,
  server: BackedUpServer,
  /** Patterns of paths that are left out (spec 12.8). */
  exclude: Schema.optionalKey(Schema.Array(Schema.String)),
  /** What is packed; default: `written` if the files of the server are a layer over their base, else `full`. */
  contents: Schema.optionalKey(BackupKind),
  /** How the server holds still, unless it runs on (spec 12.10). */
  quiesce: Schema.optionalKey(Quiesce)
})
export type CreateTask = typeof CreateTask.Type

/** `replace`: what the backup lacks is removed. `merge`: it stays. */
const RestoreMode = Schema.Literals(["replace", "merge"])

/** Paths of one restore. */
const MOST_PATHS = 100
const RestoredPaths = Schema.Array(FilePath).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_PATHS))

/** The part of a backup that is restored; unset for all of it in place of all files. */
export const RestoredPart = Schema.Struct({ paths: RestoredPaths, mode: RestoreMode })
export type RestoredPart = typeof RestoredPart.Type

/** Body of `POST /api/servers/:server/restore`. */
export const RestoreRequest = Schema.Struct({
  backup_id: Schema.String,
  /** Only these files and folders; default: all. */
  paths: optionalInput(RestoredPaths),
  mode: optionalInput(RestoreMode),
  definition: optionalInput(
    Schema.Literals(["kept", "backup"]).annotate({
      description:
        "`kept`: the definition of the server stays. `backup`: it gets the definition and the overrides that it had when the backup began. Default `kept`."
    })
  ),
  safety: optionalInput(Schema.Boolean),
  start: optionalInput(Schema.Boolean)
}).annotate({ identifier: "RestoreRequest" })
export type RestoreRequest = typeof RestoreRequest.Type

/** Paths of each kind of changes in a plan. */
export const MOST_SHOWN = 100

/** Files, folders and links of one kind. `first`: the paths of some. */
const RestoredEntries = Schema.Struct({
  count: NodeCount,
  bytes: NodeCount,
  first: Schema.Array(Schema.String)
}).annotate({ identifier: "RestoredEntries" })

/** The changes that a restore would make, by comparison on the node of the server (spec 12.5). */
export const RestoreComparison = Schema.Struct({
  created: RestoredEntries,
  changed: RestoredEntries,
  removed: RestoredEntries,
  unchanged: RestoredEntries,
  /** What the backup has where the server has a volume or mount: it is left out. Unset if there is nothing. */
  covered: Schema.optionalKey(RestoredEntries),
  /** Bytes of files that are made aside, with 512 for each entry, and those for which there is room. */
  needed_bytes: NodeCount,
  free_bytes: NodeCount
})
export type RestoreComparison = typeof RestoreComparison.Type

/** What the operation `backup.restore` does on the leader (spec 12.5). */
export const RestoreWork = Schema.Struct({
  backup_id: Schema.String,
  /** The creation of the backup of the present files, which comes first. */
  safety: Schema.NullOr(CreateTask),
  part: Schema.optionalKey(RestoredPart),
  /** Whether the server gets the definition of the backup before its files. */
  defines: Schema.optionalKey(Schema.Literal(true)),
  start: Schema.Boolean
})
export type RestoreWork = typeof RestoreWork.Type

/** Size and SHA-256 of an archive, and the SHA-256 of its manifest, in hex. */
export const ArchiveFigures = Schema.Struct({
  bytes: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
  sha256: Sha256,
  manifest_sha256: Sha256,
  /** Set if a download is made of the archive and its base, so that it has another SHA-256. */
  kind: Schema.optionalKey(Schema.Literal("written"))
})
export type ArchiveFigures = typeof ArchiveFigures.Type

/** Returns the figures of the archive of a finished backup, as the node that made it has reported them. */
export const archiveOf = ({ figures }: Pick<BackupRecord, "figures">): ArchiveFigures => ({
  bytes: figures?.stored_bytes ?? 0,
  sha256: figures?.sha256 ?? "",
  manifest_sha256: figures?.manifest_sha256 ?? "",
  ...(figures?.kind === "written" ? { kind: figures.kind } : {})
})

/** The task of an operation on a backup, on the node that has or makes it. */
export const BackupTask = Schema.Union([
  CreateTask,
  Schema.Struct({ kind: Schema.Literal("verify"), backup_id: OperationId, archive: ArchiveFigures }),
  Schema.Struct({
    kind: Schema.Literal("restore"),
    backup_id: OperationId,
    archive: ArchiveFigures,
    part: Schema.optionalKey(RestoredPart),
    /** Whether the archive arrives as the body of a call, because another node has the backup. */
    arrives: Schema.Boolean
  })
])
export type BackupTask = typeof BackupTask.Type

/** The state of a {@link BackupTask}. A task that a restart of the daemon ended begins again with the next call. */
export const BackupTaskState = Schema.Struct({
  /** `waiting`: the archive of a restore has not arrived. */
  state: Schema.Literals(["waiting", "running", "done", "failed"]),
  progress: OperationProgress,
  /** Whether a creation has not begun to read files: the server is to hold still first. */
  quiescing: Schema.optionalKey(Schema.Literal(true)),
  /** Why it has failed, what a finished restore has left out, or why none of a finished creation fits. */
  reason: Schema.optionalKey(NodeText),
  /** Set if a verification has failed because the backup is damaged, or its target has other backups only. */
  damaged: Schema.optionalKey(Schema.Literal(true)),
  /** Of a finished creation. */
  figures: Schema.optionalKey(BackupFigures)
})
export type BackupTaskState = typeof BackupTaskState.Type
