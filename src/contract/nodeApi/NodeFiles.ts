import { Data, type Effect, type Scope, type Stream } from "effect"
import type { ArchiveFormat, FileChange, FileDifference, FileEntry, FileMatch } from "../domain/Files.ts"
import type { FileTask, FileTaskState, UnpackTask } from "../domain/FileTask.ts"
import type { ServerId } from "../domain/Id.ts"
import type { DaemonError } from "./Daemon.ts"
import type { SearchFiles } from "./NodeFilesApi.ts"
import type { NodeUploads } from "./NodeUploadsApi.ts"
import type { EntryChange, FileAttributes, ListedEntry, OpenFlags, Space } from "./sessionFrames.ts"

/** The node refuses an access to files, with the status that callers get. */
export class FileRefused extends Data.TaggedError("FileRefused")<{
  readonly status: 403 | 404 | 409 | 412 | 416 | 422 | 429 | 507
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

export interface ReadFile {
  readonly path: string
  readonly start?: number
  readonly end?: number
  readonly etag?: string
  /** The pieces share memory, and each is valid until the next one is asked for. Default: false. */
  readonly isTransient?: boolean
}

/** The condition of a write: the file has this tag, or does not exist (`*` as `if_none_match`). */
export interface WriteFile {
  readonly path: string
  readonly if_match?: string
  readonly if_none_match?: "*"
  /** Permission bits in octal digits. By default a replaced file keeps its own, and a new one gets 0644. */
  readonly mode?: string
  /** SHA-256 of the contents, base64; another one is 422 and leaves the file as it was. */
  readonly sha256?: string
  /** Bytes that follow, if they are known: a write that cannot fit is refused before them. */
  readonly size?: number
  /** Only the write has the pieces, and frees the memory of each once it is written. Default: false. */
  readonly isOwned?: boolean
}

/** A regular file that a session has opened. Writes go in place and count against the disk limit. */
export interface OpenFile {
  /** Returns the bytes at an offset: fewer at the end of the file, none beyond it. */
  read(offset: number, length: number): Effect.Effect<Uint8Array, FileError>
  write(offset: number, bytes: Uint8Array): Effect.Effect<void, FileError>
  readonly stat: Effect.Effect<Required<FileAttributes>, FileError>
  set(attributes: FileAttributes): Effect.Effect<void, FileError>
  readonly sync: Effect.Effect<void, FileError>
  readonly close: Effect.Effect<void>
}

/** A folder that a session has opened. */
export interface OpenFolder {
  /** Returns some entries that were not read yet, in no order; none: the end. */
  readonly read: Effect.Effect<ReadonlyArray<ListedEntry>, FileError>
  readonly close: Effect.Effect<void>
}

/** Random access to the files of one server, until its scope ends. At most {@link MOST_OPEN} files and folders are open. */
export interface FileSession {
  open(path: string, flags: OpenFlags, mode?: number): Effect.Effect<OpenFile, FileError>
  openFolder(path: string): Effect.Effect<OpenFolder, FileError>
  change(change: EntryChange): Effect.Effect<void, FileError>
  readonly space: Effect.Effect<Space, FileError>
  /** Fails once the node has ended the session: work on the files begins, the server is removed, or the node is lost. */
  readonly ended: Effect.Effect<never, FileError>
}

export const MOST_OPEN = 64

/** Archives that are made of one server at a time: each has its own buffers, and a zip archive its directory. */
export const MOST_ARCHIVES = 4

/** Searches and comparisons with the base that run on one server at a time: each reads up to 1 GiB, or the whole tree. */
export const MOST_SEARCHES = 4

/** Entries that one call changes; more are a task. */
export const MOST_ENTRIES = 1000

/**
 * The files of the servers of a node (spec 10). Every path is absolute in the instance and is walked without links.
 * {@link FileRefused} is 403 the blueprint forbids it, 404 no such path, 409 a folder in place of a file or the reverse,
 * or the server migrates or is being installed, 412 a condition does not hold, 416, 429 too many archives or searches,
 * 507 no room.
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
    request: ReadFile
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope>
  /** Replaces a file once the last byte is on disk, and makes missing folders. A failure leaves nothing. */
  write<E>(
    id: ServerId,
    request: WriteFile,
    bytes: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<{ readonly created: boolean; readonly etag: string }, FileError | E>
  readonly uploads: NodeUploads
  /**
   * Makes changes in order, each with its outcome: undefined, or the refusal. If they delete or copy trees of more than
   * {@link MOST_ENTRIES} entries in all, none is made: `large`.
   */
  change(
    id: ServerId,
    changes: ReadonlyArray<FileChange>
  ): Effect.Effect<ReadonlyArray<FileError | undefined> | "large", FileError>
  /** Begins the task of an operation, or continues it after a restart of the daemon; idempotent by its id (spec 11.4). */
  begin(
    id: ServerId,
    request: { readonly operation_id: string; readonly task: FileTask }
  ): Effect.Effect<FileTaskState, FileError>
  /** Returns the state of the task of an operation on its node; 404 if the node has no record of it. */
  progress(id: ServerId, operation_id: string): Effect.Effect<FileTaskState, FileError>
  /** Ends a task and undoes what is half made; idempotent, also for a task that the node does not know. */
  cancel(
    id: ServerId,
    request: { readonly operation_id: string; readonly task: FileTask }
  ): Effect.Effect<void, FileError>
  /**
   * Unpacks an archive while it arrives, as the task of an operation; `begin` follows it. Returns once its last byte has
   * arrived. Fails as the task does before that, and then leaves nothing.
   */
  receive<E>(
    id: ServerId,
    request: { readonly operation_id: string; readonly task: Omit<UnpackTask, "path"> },
    bytes: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<void, FileError | E>
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
  session(id: ServerId): Effect.Effect<FileSession, FileError, Scope.Scope>
  /** Returns the paths at which the server differs from its base. */
  diff(id: ServerId): Effect.Effect<ReadonlyArray<FileDifference>, FileError>
}
