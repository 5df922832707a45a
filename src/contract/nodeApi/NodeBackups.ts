/** The backups of a node: the calls and their wire, between the control plane and a daemon (spec 12.3). */
import { type Effect, Schema, type Scope, type Stream, Struct } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { endpoints } from "../api/endpoint.ts"
import { Policy } from "../api/middleware.ts"
import {
  ArchiveFigures,
  BackupTask,
  BackupTaskState,
  PackedEntry,
  RestoreComparison,
  RestoredPart
} from "../domain/Backup.ts"
import { TargetAccess, TargetTest } from "../domain/BackupTarget.ts"
import { FilePath } from "../domain/Files.ts"
import { OperationId } from "../domain/FileTask.ts"
import { ServerId } from "../domain/Id.ts"
import { ServerSpec } from "../domain/NodeMessages.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"
import type { FileError } from "./NodeFiles.ts"
import { bytes, DaemonAuthorization, refusals } from "./NodeFilesApi.ts"

export interface BackupTaskRequest {
  readonly operation_id: string
  readonly task: BackupTask
  /** Where the backup is. */
  readonly target: TargetAccess
}

/** A path of a backup, and the page of what the folder there has; no page with the limit 0. */
const LookInto = Schema.Struct({
  path: FilePath,
  limit: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 })),
  after: Schema.optionalKey(Schema.String),
  /** Whether the bytes of a download are wanted. */
  measures: Schema.optionalKey(Schema.Boolean)
})
export type LookInto = typeof LookInto.Type

const ByteCount = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** The entry at a path, if there is one, and entries below it by name. `next`: the name to continue after. */
const LookedAt = Schema.Struct({
  entry: Schema.optionalKey(PackedEntry),
  entries: Schema.Array(PackedEntry),
  next: Schema.optionalKey(Schema.String),
  /** Bytes of a download of the kind `written`. */
  archive_bytes: Schema.optionalKey(ByteCount)
})
export type LookedAt = typeof LookedAt.Type

/** Bytes `start` to `end`, both included, of an archive of `size` bytes. */
const ArchiveRange = Schema.Struct({ start: ByteCount, end: ByteCount, size: ByteCount })
export type ArchiveRange = typeof ArchiveRange.Type

const QueryCount = Schema.NumberFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0))
const QueryPart = Schema.optionalKey(Schema.fromJsonString(RestoredPart))

/** A file of a backup as its entry has it, and its bytes `start` to `end`, both included. */
const ContentsOfBackup = Schema.Struct({
  at: ByteCount,
  size: ByteCount,
  sha256: Schema.String,
  start: ByteCount,
  end: ByteCount
})
export type ContentsOfBackup = typeof ContentsOfBackup.Type

/** A backup in a target, and the figures that the control plane has of it. */
export interface StoredBackup {
  readonly id: string
  readonly target: TargetAccess
  readonly archive: ArchiveFigures
}

/** A cancelled restore whose files are in place nevertheless, and what it has left out. */
const PlacedRestore = BackupTaskState.mapFields(Struct.pick(["reason"]))
export type PlacedRestore = typeof PlacedRestore.Type

/** The part of a backup that is compared; unset for all of it in place of all files. */
export interface CompareRequest {
  readonly part?: RestoredPart
  /** A file of the size and time of its entry that has not changed since this time, in ms since the epoch, is not read. */
  readonly same_since?: number
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
  /**
   * Ends a task and removes an unfinished backup; idempotent, also for a task that the node does not know. Files of a
   * restore that are on their way into place get there.
   */
  cancel(id: ServerId, request: BackupTaskRequest): Effect.Effect<PlacedRestore | undefined, FileError>
  /** Removes a backup; idempotent. @error FileRefused 409 a task works on it */
  remove(backup_id: string, target: TargetAccess): Effect.Effect<void, FileError>
  /**
   * Streams the archive of a backup, in the format `tar.zst`, or a range of it. The stream fails before the last byte of a
   * part that is not as it was written, and of an archive with another SHA-256. One of the kind `written` has all files: as
   * a whole it is compressed; a range is one of an archive that is not.
   * @error FileRefused 404 the node does not have the backup
   */
  archive(
    backup: StoredBackup,
    range?: ArchiveRange
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Returns entries of a backup. @error FileRefused 404 the node does not have the backup */
  look(backup: StoredBackup, at: LookInto): Effect.Effect<LookedAt, FileError>
  /** Streams a file of a backup. The stream fails before the last byte of a file with another SHA-256. */
  contents(
    backup: StoredBackup,
    file: ContentsOfBackup
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Returns the definition of the server of a backup. @error FileRefused 404 the node does not have the backup */
  definition(backup: StoredBackup): Effect.Effect<ServerDefinition, FileError>
  /** Streams the entries of a backup, one JSON object a line. @error FileRefused 404 the node does not have the backup */
  index(backup: StoredBackup): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Compares the files of a server with the entries of a backup, and changes nothing (spec 12.5). */
  compare<E>(
    id: ServerId,
    request: CompareRequest,
    index: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<RestoreComparison, FileError | E>
  /** Writes, reads and removes an object of a target. */
  test(target: TargetAccess): Effect.Effect<TargetTest, FileError>
}

const { post, put } = endpoints({ backup: OperationId, id: ServerId }, refusals)
const payload = Schema.Struct({ operation_id: OperationId, task: BackupTask, target: TargetAccess })
const inTarget = Schema.Struct({ target: TargetAccess })
const stored = { target: TargetAccess, archive: ArchiveFigures }

/** The calls of {@link NodeBackups}. An archive is a stream without limit and deadline. */
export class NodeBackupsGroup extends HttpApiGroup.make("nodeBackups")
  .add(
    post("work", "/servers/:id/backups", "Begin the task of an operation on a backup, or return its state", {
      payload,
      success: BackupTaskState
    }),
    post("cancel", "/servers/:id/backups/cancel", "Cancel the task of an operation on a backup", {
      payload,
      success: [PlacedRestore, HttpApiSchema.NoContent]
    }),
    put("receive", "/servers/:id/backups/archive", "Restore an archive while it arrives", {
      transfers: true,
      query: {
        operation_id: OperationId,
        backup_id: OperationId,
        bytes: QueryCount,
        sha256: Schema.String,
        manifest_sha256: Schema.String,
        kind: Schema.optionalKey(Schema.Literal("written")),
        part: QueryPart
      },
      payload: bytes
    }),
    post("remove", "/backups/:backup/remove", "Remove a backup; an unknown id is no error", {
      payload: inTarget
    }),
    post("archive", "/backups/:backup/archive", "The archive of a backup", {
      transfers: true,
      payload: Schema.Struct({
        ...stored,
        range: Schema.optionalKey(ArchiveRange)
      }),
      success: bytes
    }),
    post("look", "/backups/:backup/look", "Entries of a backup", {
      longestWait: 120,
      payload: Schema.Struct({ ...stored, at: LookInto }),
      success: LookedAt
    }),
    post("contents", "/backups/:backup/contents", "Bytes of a file of a backup", {
      transfers: true,
      payload: Schema.Struct({ ...stored, file: ContentsOfBackup }),
      success: bytes
    }),
    post("definition", "/backups/:backup/definition", "The definition of the server of a backup", {
      longestWait: 120,
      payload: Schema.Struct(stored),
      success: ServerSpec.fields.definition
    }),
    post("index", "/backups/:backup/index", "The entries of a backup", {
      transfers: true,
      payload: Schema.Struct(stored),
      success: bytes
    }),
    put(
      "compare",
      "/servers/:id/backups/compare",
      "Compare files with the entries of a backup as they arrive",
      {
        transfers: true,
        query: { part: QueryPart, same_since: Schema.optionalKey(QueryCount) },
        payload: bytes,
        success: RestoreComparison
      }
    ),
    post("test", "/backups/test", "Write, read and remove an object of a target", {
      payload: inTarget,
      success: TargetTest,
      errors: refusals
    })
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Backups of servers" })) {}
