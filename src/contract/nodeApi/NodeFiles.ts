import { Data, type Effect, type Scope, type Stream } from "effect"
import type { ArchiveFormat, FileChange, FileDifference, FileEntry, FileMatch } from "../domain/Files.ts"
import type { FileTask, FileTaskState } from "../domain/FileTask.ts"
import type { ServerId } from "../domain/Id.ts"
import type { DaemonError } from "./Daemon.ts"

/** The node refuses an access to files, with the status that callers get. */
export class FileRefused extends Data.TaggedError("FileRefused")<{
  readonly status: 403 | 404 | 409 | 412 | 416 | 422 | 507
  readonly detail: string
  readonly hint: string
}> {}

export type FileError = DaemonError | FileRefused

/** A page of a folder, by name. `next`: the name to continue after, unless it is the last page. */
export interface FolderPage {
  readonly entries: ReadonlyArray<FileEntry>
  readonly next?: string
}

/** An entry with its strong tag, quoted; the tag changes with each write of the file. */
export interface TaggedEntry {
  readonly entry: FileEntry
  readonly etag: string
}

/** The condition of a write: the file has this tag, or does not exist (`*` as `if_none_match`). */
export interface WriteFile {
  readonly path: string
  readonly if_match?: string
  readonly if_none_match?: "*"
  /** Permission bits in octal digits; default: those of the file, or 0644. */
  readonly mode?: string
  /** SHA-256 of the contents, base64; another one is 422 and leaves the file as it was. */
  readonly sha256?: string
  /** Bytes that follow, if they are known: a write that cannot fit is refused before them. */
  readonly size?: number
}

export interface SearchFiles {
  readonly path: string
  /** A glob of names. */
  readonly name?: string
  /** A literal text; default: files are found by name alone. */
  readonly text?: string
  readonly case_sensitive: boolean
  readonly limit: number
}

/**
 * The files of the servers of a node (spec 10). Every path is absolute in the instance and is walked without links.
 * {@link FileRefused} is 403 the blueprint forbids it, 404 no such path, 409 a folder in place of a
 * file or the reverse, or the server migrates or is being installed, 412 a condition does not hold, 416, 507 no room.
 */
export interface NodeFiles {
  list(
    id: ServerId,
    request: {
      readonly path: string
      readonly after?: string
      readonly limit: number
      readonly sizes: boolean
    }
  ): Effect.Effect<FolderPage, FileError>
  stat(id: ServerId, path: string): Effect.Effect<TaggedEntry, FileError>
  /** Bytes `start` to `end`, both included; 412 if the file no longer has the tag `etag`. */
  read(
    id: ServerId,
    request: { readonly path: string; readonly start?: number; readonly end?: number; readonly etag?: string }
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Replaces a file once the last byte is on disk, and makes missing folders. A failure leaves nothing. */
  write<E>(
    id: ServerId,
    request: WriteFile,
    bytes: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<{ readonly created: boolean; readonly etag: string }, FileError | E>
  /** Makes changes in order, each with its outcome: undefined, or the refusal. */
  change(
    id: ServerId,
    changes: ReadonlyArray<FileChange>
  ): Effect.Effect<ReadonlyArray<FileError | undefined>, FileError>
  /** Begins the task of an operation, or continues it after a restart of the daemon; idempotent by its id (spec 11.4). */
  begin(
    id: ServerId,
    request: { readonly operation_id: string; readonly task: FileTask }
  ): Effect.Effect<FileTaskState, FileError>
  /** What the node knows of the task of an operation; 404 if it knows none. */
  progress(id: ServerId, operation_id: string): Effect.Effect<FileTaskState, FileError>
  /** Ends a task and undoes what is half made; idempotent, also for a task that the node does not know. */
  cancel(
    id: ServerId,
    request: { readonly operation_id: string; readonly task: FileTask }
  ): Effect.Effect<void, FileError>
  /** Streams files and folders as an archive, without a temporary copy. */
  archive(
    id: ServerId,
    request: { readonly paths: ReadonlyArray<string>; readonly format: ArchiveFormat }
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** `incomplete`: a limit of time, files or bytes ended the search. */
  search(
    id: ServerId,
    request: SearchFiles
  ): Effect.Effect<{ readonly matches: ReadonlyArray<FileMatch>; readonly incomplete: boolean }, FileError>
  /** What the server has written over its base. */
  diff(id: ServerId): Effect.Effect<ReadonlyArray<FileDifference>, FileError>
}
