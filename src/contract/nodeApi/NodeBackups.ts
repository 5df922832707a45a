/** The backups of a node: the calls and their wire, between the control plane and a daemon (spec 12.3). */
import { type Effect, Schema, type Scope, type Stream } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Policy, route } from "../api/routePolicy.ts"
import { BackupTask, BackupTaskState, RestoredPart } from "../domain/Backup.ts"
import { TargetAccess, TargetTest } from "../domain/BackupTarget.ts"
import { OperationId } from "../domain/FileTask.ts"
import { ServerId } from "../domain/Id.ts"
import { DaemonAuthorization } from "./DaemonAuthorization.ts"
import type { FileError } from "./NodeFiles.ts"
import { refusals } from "./NodeFilesApi.ts"

export interface BackupTaskRequest {
  readonly operation_id: string
  readonly task: BackupTask
  /** Where the backup is. */
  readonly target: TargetAccess
}

/** The backups that a node makes and reads, in its own folder or in another target (spec 12.3, 12.6). */
export interface NodeBackups {
  /** Begins the task of an operation, or returns the state that it has; idempotent by the id of the operation. */
  work(id: ServerId, request: BackupTaskRequest): Effect.Effect<BackupTaskState, FileError>
  /**
   * Gives a restore its archive, and begins it. Returns once every byte has arrived and the digest is right.
   * @error FileRefused 409 the archive arrives already, or the transfer was interrupted
   */
  receive<E>(
    id: ServerId,
    request: BackupTaskRequest,
    bytes: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<void, FileError | E>
  /** Ends a task and removes an unfinished backup; idempotent, also for a task that the node does not know. */
  cancel(id: ServerId, request: BackupTaskRequest): Effect.Effect<void, FileError>
  /** Removes a backup; idempotent. @error FileRefused 409 a task works on it */
  remove(backup_id: string, target: TargetAccess): Effect.Effect<void, FileError>
  /**
   * Streams the archive of a backup, in the format `tar.zst`. The stream fails at a part that is not as it was written,
   * and at the end of an archive with another SHA-256.
   * @error FileRefused 404 the node does not have the backup
   */
  archive(
    backup_id: string,
    target: TargetAccess,
    sha256: string
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Writes, reads and removes an object of a target. */
  test(target: TargetAccess): Effect.Effect<TargetTest, FileError>
}

const server = { id: ServerId }
const backup = { backup: OperationId }
const payload = Schema.Struct({ operation_id: OperationId, task: BackupTask, target: TargetAccess })
const inTarget = Schema.Struct({ target: TargetAccess })

/** The calls of {@link NodeBackups}. An archive is a stream without limit and deadline. */
export class NodeBackupsGroup extends HttpApiGroup.make("nodeBackups")
  .add(
    HttpApiEndpoint.post("work", "/servers/:id/backups", {
      params: server,
      payload,
      success: BackupTaskState,
      error: refusals
    }).annotateMerge(route("Begin the task of an operation on a backup, or return its state")),
    HttpApiEndpoint.post("cancel", "/servers/:id/backups/cancel", {
      params: server,
      payload,
      error: refusals
    }).annotateMerge(route("Cancel the task of an operation on a backup")),
    HttpApiEndpoint.put("receive", "/servers/:id/backups/archive", {
      params: server,
      query: {
        operation_id: OperationId,
        backup_id: OperationId,
        bytes: Schema.NumberFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0)),
        sha256: Schema.String,
        part: Schema.optionalKey(Schema.fromJsonString(RestoredPart))
      },
      payload: HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" }),
      error: refusals
    }).annotateMerge(route("Restore an archive while it arrives", { transfers: true })),
    HttpApiEndpoint.post("remove", "/backups/:backup/remove", {
      params: backup,
      payload: inTarget,
      error: refusals
    }).annotateMerge(route("Remove a backup; an unknown id is no error")),
    HttpApiEndpoint.post("archive", "/backups/:backup/archive", {
      params: backup,
      payload: Schema.Struct({ ...inTarget.fields, sha256: Schema.String }),
      success: HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" }),
      error: refusals
    }).annotateMerge(route("The archive of a backup", { transfers: true })),
    HttpApiEndpoint.post("test", "/backups/test", {
      payload: inTarget,
      success: TargetTest,
      error: refusals
    }).annotateMerge(route("Write, read and remove an object of a target"))
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Backups of servers" })) {}
