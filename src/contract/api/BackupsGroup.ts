import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import {
  Backup,
  BackupEntry,
  BackupPatch,
  BackupRequest,
  BackupState,
  DrillRequest,
  RestoreComparison,
  RestoreRequest
} from "../domain/Backup.ts"
import {
  BackupTargetView,
  CreateBackupTarget,
  PatchBackupTarget,
  TestBackupTarget,
  TestedBackupTarget
} from "../domain/BackupTarget.ts"
import { Conflict, RangeNotSatisfiable } from "../domain/errors.ts"
import { BulkOutcomes, Selector } from "../domain/Selector.ts"
import { DefinitionChange } from "../domain/ServerDefinition.ts"
import { del, get, onNode, patch, post } from "./endpoint.ts"
import { bytes, rangeHeaders, ticket } from "./FilesGroup.ts"
import { Authorization, ReadableServers } from "./middleware.ts"
import { begun } from "./OperationsGroup.ts"
import { filePath, flag, labels, numberBetween, oneOf, text, time } from "./query.ts"

const page = {
  state: oneOf(BackupState.literals, "Only backups in this state."),
  target: text("Only backups of this target."),
  label: labels("Only backups whose labels meet the condition; may be given more than once."),
  since: time("Only backups that were begun at this time or later."),
  limit: numberBetween(1, 100, "At most this many backups; default 20. `Link` has the next page."),
  after: text("Only backups that are older than the one with this id.")
}

export const BulkBackup = Schema.Struct({ selector: Selector, ...BackupRequest.fields }).annotate({
  identifier: "BulkBackup"
})

/** The plan of a restore (`?dry_run=true`). */
export const RestorePlan = Schema.Struct({
  backup_id: Schema.String,
  ...RestoreComparison.fields,
  /** Whether the server is not offline, so that it must be stopped first. */
  must_stop: Schema.Boolean,
  /** The name of the backup of the present files, which comes first. */
  safety: Schema.optionalKey(Schema.String),
  /** The changes of the definition, if that of the backup is restored. */
  definition: Schema.optionalKey(Schema.Array(DefinitionChange))
}).annotate({ identifier: "RestorePlan" })
export type RestorePlan = typeof RestorePlan.Type

/** Backups of servers (spec 12). */
export class BackupsGroup extends HttpApiGroup.make("backups")
  .add(
    onNode.post("create", "/servers/:server/backups", "Back up the files of a server", {
      right: "backups",
      audited: "backup.create",
      ...begun,
      payload: BackupRequest
    }),
    post(
      "createMany",
      "/backups",
      "Back up the files of all selected servers; each node makes one backup at a time",
      {
        right: "backups",
        audited: "backup.create",
        longestWait: 60,
        payload: BulkBackup,
        success: BulkOutcomes
      }
    ),
    onNode.post(
      "restore",
      "/servers/:server/restore",
      "Replace the files of an offline server by those of a backup; dry_run=true: show what would change",
      {
        right: "restore",
        audited: "backup.restore",
        ...begun,
        query: { dry_run: flag("`true`: returns what would change, and changes nothing; default `false`.") },
        payload: RestoreRequest,
        success: [begun.success, RestorePlan]
      }
    ),
    get("listOf", "/servers/:server/backups", "Backups of a server, newest first", {
      right: "backups",
      query: page,
      success: Schema.Array(Backup)
    }),
    get("list", "/backups", "Backups that the key may see, newest first", {
      right: "backups",
      query: {
        server_id: text("Only backups of this server, which may be deleted."),
        blueprint_id: text("Only backups of servers of this blueprint."),
        ...page
      },
      success: Schema.Array(Backup)
    }),
    get("get", "/backups/:backup", "State and figures of a backup", { right: "backups", success: Backup }),
    patch("patch", "/backups/:backup", "Change name, labels, pin and expiry of a backup", {
      right: "backups",
      audited: "backup.change",
      payload: BackupPatch,
      success: Backup
    }),
    onNode.del(
      "remove",
      "/backups/:backup",
      "Delete a backup; if its node is away, its files are removed later",
      {
        right: "restore",
        audited: "backup.delete",
        success: HttpApiSchema.Empty(204)
      }
    ),
    onNode.get("files", "/backups/:backup/files", "List a folder of a backup, by name", {
      right: "backups",
      longestWait: 120,
      query: {
        path: filePath("The folder; default `/`."),
        limit: numberBetween(1, 1000, "At most this many entries; `Link` has the address of the next page."),
        after: text("Only entries after the one with this name.")
      },
      success: Schema.Array(BackupEntry)
    }),
    onNode.get(
      "content",
      "/backups/:backup/files/content",
      "Download a file of a backup; HEAD returns its size and its tag",
      {
        right: "backups",
        audited: "backup.read",
        acceptsTicket: true,
        transfers: true,
        query: { path: filePath("The file to read."), ticket },
        headers: rangeHeaders,
        success: bytes,
        errors: [RangeNotSatisfiable]
      }
    ),
    onNode.get("archive", "/backups/:backup/archive", "Download a backup as tar.zst", {
      right: "backups",
      audited: "backup.read",
      acceptsTicket: true,
      transfers: true,
      query: { ticket },
      headers: rangeHeaders,
      success: bytes,
      errors: [RangeNotSatisfiable]
    }),
    onNode.post(
      "verify",
      "/backups/:backup/verify",
      "Read every part of a backup, and compare it with its digest",
      {
        right: "backups",
        audited: "backup.verify",
        ...begun
      }
    ),
    onNode.post(
      "drill",
      "/backups/:backup/drill",
      "Make a server of a backup, wait until it runs, and delete it; also needs the right create",
      {
        right: "restore",
        audited: "backup.drill",
        ...begun,
        payload: DrillRequest
      }
    )
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Backups" })) {}

/** Targets of backups (spec 12.6). */
export class BackupTargetsGroup extends HttpApiGroup.make("backupTargets")
  .add(
    get("list", "/backup-targets", "List the targets of backups", {
      success: Schema.Array(BackupTargetView)
    }),
    post("create", "/backup-targets", "Define a target of backups", {
      audited: "target.create",
      payload: CreateBackupTarget,
      success: BackupTargetView.pipe(HttpApiSchema.status(201)),
      errors: [Conflict]
    }),
    get("get", "/backup-targets/:target", "One target of backups, without its secret", {
      success: BackupTargetView,
      errors: [Conflict]
    }),
    patch("patch", "/backup-targets/:target", "Change a target of backups", {
      audited: "target.patch",
      payload: PatchBackupTarget,
      success: BackupTargetView,
      errors: [Conflict]
    }),
    del("remove", "/backup-targets/:target", "Delete a target of backups that has none", {
      audited: "target.delete",
      success: HttpApiSchema.Empty(204),
      errors: [Conflict]
    }),
    onNode.post(
      "test",
      "/backup-targets/:target/test",
      "Have a node write, read and delete an object of the target; the response says what failed",
      { audited: "target.test", payload: TestBackupTarget, success: TestedBackupTarget }
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Targets of backups" })) {}
