import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
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
import { Conflict, Forbidden, InvalidRequest, NotFound, RangeNotSatisfiable } from "../domain/errors.ts"
import { Operation } from "../domain/Operation.ts"
import { BulkOutcomes, Selector } from "../domain/Selector.ts"
import { DefinitionChange } from "../domain/ServerDefinition.ts"
import { bytes, errorsOfNode, ofServer, rangeHeaders, ticket } from "./FilesGroup.ts"
import { Authorization, ReadableServers, route } from "./middleware.ts"
import { LONGEST_WAIT_SECONDS, waitHeaders } from "./OperationsGroup.ts"
import { filePath, flag, labels, numberBetween, oneOf, text, time } from "./query.ts"

const backup = { backup: Schema.String.annotate({ description: "The id of the backup." }) }

const page = {
  state: oneOf(BackupState.literals, "Only backups in this state."),
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
    HttpApiEndpoint.post("create", "/servers/:server/backups", {
      params: ofServer,
      headers: waitHeaders,
      payload: BackupRequest,
      success: Operation.pipe(HttpApiSchema.status(202)),
      error: errorsOfNode
    }).annotateMerge(
      route("Back up the files of a server", {
        right: "backups",
        audited: "backup.create",
        longestWait: LONGEST_WAIT_SECONDS
      })
    ),
    HttpApiEndpoint.post("createMany", "/backups", {
      payload: BulkBackup,
      success: BulkOutcomes,
      error: InvalidRequest
    }).annotateMerge(
      route("Back up the files of all selected servers; each node makes one backup at a time", {
        right: "backups",
        audited: "backup.create",
        longestWait: 60
      })
    ),
    HttpApiEndpoint.post("restore", "/servers/:server/restore", {
      params: ofServer,
      headers: waitHeaders,
      query: { dry_run: flag("`true`: returns what would change, and changes nothing; default `false`.") },
      payload: RestoreRequest,
      success: [Operation.pipe(HttpApiSchema.status(202)), RestorePlan],
      error: [...errorsOfNode, Forbidden, InvalidRequest]
    }).annotateMerge(
      route(
        "Replace the files of an offline server by those of a backup; dry_run=true: show what would change",
        {
          right: "restore",
          audited: "backup.restore",
          longestWait: LONGEST_WAIT_SECONDS
        }
      )
    ),
    HttpApiEndpoint.get("listOf", "/servers/:server/backups", {
      params: ofServer,
      query: page,
      success: Schema.Array(Backup),
      error: [NotFound, InvalidRequest]
    }).annotateMerge(route("Backups of a server, newest first", { right: "backups" })),
    HttpApiEndpoint.get("list", "/backups", {
      query: {
        server_id: text("Only backups of this server, which may be deleted."),
        blueprint_id: text("Only backups of servers of this blueprint."),
        ...page
      },
      success: Schema.Array(Backup),
      error: InvalidRequest
    }).annotateMerge(route("Backups that the key may see, newest first", { right: "backups" })),
    HttpApiEndpoint.get("get", "/backups/:backup", {
      params: backup,
      success: Backup,
      error: NotFound
    }).annotateMerge(route("State and figures of a backup", { right: "backups" })),
    HttpApiEndpoint.patch("patch", "/backups/:backup", {
      params: backup,
      payload: BackupPatch,
      success: Backup,
      error: NotFound
    }).annotateMerge(
      route("Change name, labels, pin and expiry of a backup", { right: "backups", audited: "backup.change" })
    ),
    HttpApiEndpoint.delete("remove", "/backups/:backup", {
      params: backup,
      success: HttpApiSchema.Empty(204),
      error: errorsOfNode
    }).annotateMerge(
      route("Delete a backup; if its node is away, its files are removed later", {
        right: "restore",
        audited: "backup.delete"
      })
    ),
    HttpApiEndpoint.get("files", "/backups/:backup/files", {
      params: backup,
      query: {
        path: filePath("The folder; default `/`."),
        limit: numberBetween(1, 1000, "At most this many entries; `Link` has the address of the next page."),
        after: text("Only entries after the one with this name.")
      },
      success: Schema.Array(BackupEntry),
      error: errorsOfNode
    }).annotateMerge(route("List a folder of a backup, by name", { right: "backups", longestWait: 120 })),
    HttpApiEndpoint.get("content", "/backups/:backup/files/content", {
      params: backup,
      query: { path: filePath("The file to read."), ticket },
      headers: rangeHeaders,
      success: bytes,
      error: [...errorsOfNode, RangeNotSatisfiable]
    }).annotateMerge(
      route("Download a file of a backup; HEAD returns its size and its tag", {
        right: "backups",
        audited: "backup.read",
        acceptsTicket: true,
        transfers: true
      })
    ),
    HttpApiEndpoint.get("archive", "/backups/:backup/archive", {
      params: backup,
      query: { ticket },
      headers: rangeHeaders,
      success: bytes,
      error: [...errorsOfNode, RangeNotSatisfiable]
    }).annotateMerge(
      route("Download a backup as tar.zst", {
        right: "backups",
        audited: "backup.read",
        acceptsTicket: true,
        transfers: true
      })
    ),
    HttpApiEndpoint.post("verify", "/backups/:backup/verify", {
      params: backup,
      headers: waitHeaders,
      success: Operation.pipe(HttpApiSchema.status(202)),
      error: errorsOfNode
    }).annotateMerge(
      route("Read every part of a backup, and compare it with its digest", {
        right: "backups",
        audited: "backup.verify",
        longestWait: LONGEST_WAIT_SECONDS
      })
    ),
    HttpApiEndpoint.post("drill", "/backups/:backup/drill", {
      params: backup,
      headers: waitHeaders,
      payload: DrillRequest,
      success: Operation.pipe(HttpApiSchema.status(202)),
      error: [...errorsOfNode, Forbidden, InvalidRequest]
    }).annotateMerge(
      route("Make a server of a backup, wait until it runs, and delete it; also needs the right create", {
        right: "restore",
        audited: "backup.drill",
        longestWait: LONGEST_WAIT_SECONDS
      })
    )
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Backups" })) {}

const target = { target: Schema.String.annotate({ description: "The id of the target." }) }

/** Targets of backups (spec 12.6). */
export class BackupTargetsGroup extends HttpApiGroup.make("backupTargets")
  .add(
    HttpApiEndpoint.get("list", "/backup-targets", { success: Schema.Array(BackupTargetView) }).annotateMerge(
      route("List the targets of backups")
    ),
    HttpApiEndpoint.post("create", "/backup-targets", {
      payload: CreateBackupTarget,
      success: BackupTargetView.pipe(HttpApiSchema.status(201)),
      error: Conflict
    }).annotateMerge(route("Define a target of backups", { audited: "target.create" })),
    HttpApiEndpoint.get("get", "/backup-targets/:target", {
      params: target,
      success: BackupTargetView,
      error: [NotFound, Conflict]
    }).annotateMerge(route("One target of backups, without its secret")),
    HttpApiEndpoint.patch("patch", "/backup-targets/:target", {
      params: target,
      payload: PatchBackupTarget,
      success: BackupTargetView,
      error: [NotFound, Conflict]
    }).annotateMerge(route("Change a target of backups", { audited: "target.patch" })),
    HttpApiEndpoint.delete("remove", "/backup-targets/:target", {
      params: target,
      success: HttpApiSchema.Empty(204),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Delete a target of backups that has none", { audited: "target.delete" })),
    HttpApiEndpoint.post("test", "/backup-targets/:target/test", {
      params: target,
      payload: TestBackupTarget,
      success: TestedBackupTarget,
      error: errorsOfNode
    }).annotateMerge(
      route("Have a node write, read and delete an object of the target; the response says what failed", {
        audited: "target.test"
      })
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Targets of backups" })) {}
