/** The client for programs without Effect: promises, async iterators, one class of errors. */
import { Cause, Data, Effect, Exit, Predicate, Redacted, Scope, Stream } from "effect"
import { HttpClientError } from "effect/http"
import type { HttpApiClient, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { whyNoAnswer } from "../contract/api/noAnswer.ts"
import type { CreationPlan } from "../contract/api/ServersGroup.ts"
import type { BackupEntry } from "../contract/domain/Backup.ts"
import type { FileEntry } from "../contract/domain/Files.ts"
import type { ServerId } from "../contract/domain/Id.ts"
import type { Operation } from "../contract/domain/Operation.ts"
import type { Server } from "../contract/domain/Server.ts"
import {
  type Creation,
  type DryRun,
  type EndpointsOf,
  mapCalls,
  type NamedGroup,
  type RequestOf,
  type TopLevel
} from "./calls.ts"
import type { Change, FollowOptions, ListOptions, Reset, Snapshot } from "./follow.ts"
import { makeClient, Platform } from "./MusterClient.ts"
import { isTransient } from "./responses.ts"
import type { ResumableContents, ResumableOptions } from "./resumable.ts"
import {
  type BackupDownloadOptions,
  type DownloadOptions,
  type FolderOptions,
  isBlob,
  type UnpackOptions,
  type UploadOptions
} from "./transfer.ts"
import type { OperationOptions, WaitOptions, WaitState } from "./waitUntil.ts"

export type { BackupEntry } from "../contract/domain/Backup.ts"
export type { FileEntry } from "../contract/domain/Files.ts"
export { NodeId, ServerId } from "../contract/domain/Id.ts"
export { isOperation, type Operation } from "../contract/domain/Operation.ts"
export type { Server } from "../contract/domain/Server.ts"
export type { Change, FollowFrom, FollowOptions, ListOptions, Reset, Snapshot } from "./follow.ts"
export type { BegunUpload, ResumableOptions } from "./resumable.ts"
export type {
  BackupDownloadOptions,
  DownloadOptions,
  FolderOptions,
  TransferProgress,
  TransferredFile,
  UnpackOptions,
  UploadOptions
} from "./transfer.ts"
export type { OperationOptions, WaitOptions, WaitState } from "./waitUntil.ts"

/** A call that failed. It has the fields of an error body (spec 1.4). */
export class MusterError extends Error {
  /** The HTTP status as text; `unreachable`, `invalid response` or `timed out` without an error body. */
  readonly code: string
  readonly status: string
  readonly detail: string
  readonly hint: string
  /** The id of the request in the log of the service; empty without an error body. */
  readonly requestId: string

  constructor(
    fields: Pick<MusterError, "code" | "status" | "detail" | "hint" | "requestId">,
    options?: ErrorOptions
  ) {
    super(fields.detail, options)
    this.name = "MusterError"
    this.code = fields.code
    this.status = fields.status
    this.detail = fields.detail
    this.hint = fields.hint
    this.requestId = fields.requestId
  }
}

const textOf = (value: unknown) => (typeof value === "string" ? value : "")

/** The message, with the reason of the platform if there is no response. */
const messageOf = (failure: unknown) => {
  if (!(failure instanceof Error)) return String(failure)
  if (!HttpClientError.isHttpClientError(failure)) return failure.message
  const { code, message } = whyNoAnswer(failure)
  return [failure.message, message || code].filter((part) => part !== "").join(": ")
}

const other = (code: string, hint: string) => (failure: unknown) =>
  new MusterError({ code, status: code, detail: messageOf(failure), hint, requestId: "" }, { cause: failure })

const unreachable = other("unreachable", "Check baseUrl and the network, then try again.")
const timedOut = other("timed out", "Read the server, or wait longer.")
const invalid = other("invalid response", "Check baseUrl, and use a client of the version of the service.")

const toError = (failure: unknown): MusterError => {
  if (Predicate.hasProperty(failure, "code") && Predicate.hasProperty(failure, "hint")) {
    return new MusterError(
      {
        code: textOf(failure.code),
        status: textOf("status" in failure ? failure.status : ""),
        detail: textOf("detail" in failure ? failure.detail : ""),
        hint: textOf(failure.hint),
        requestId: textOf("request_id" in failure ? failure.request_id : "")
      },
      { cause: failure }
    )
  }
  if (Predicate.isTagged(failure, "WaitTimedOut")) return timedOut(failure)
  return Predicate.isTagged(failure, "SocketError") || isTransient(failure)
    ? unreachable(failure)
    : invalid(failure)
}

export interface CallOptions {
  /** Ends the call; its promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal
}

const run = <A, E>(effect: Effect.Effect<A, E>, { signal }: CallOptions = {}): Promise<A> =>
  Effect.runPromiseExit(effect, signal === undefined ? {} : { signal }).then((exit) => {
    if (Exit.isSuccess(exit)) return exit.value
    const failure = Cause.squash(exit.cause)
    return Promise.reject(
      signal?.aborted === true && Cause.hasInterrupts(exit.cause)
        ? signal.reason
        : failure instanceof ContentsFailed
          ? failure.reason
          : toError(failure)
    )
  })

/** Fails with the reason of a signal once it is aborted. */
const aborted = (signal: AbortSignal) =>
  Effect.callback<never, unknown>((resume) => {
    const abort = () => resume(Effect.fail(signal.reason))
    if (signal.aborted) return abort()
    signal.addEventListener("abort", abort, { once: true })
    return Effect.sync(() => signal.removeEventListener("abort", abort))
  })

const iterate = <A, E>(stream: Stream.Stream<A, E>, { signal }: CallOptions = {}): AsyncIterable<A> => {
  const failing = Stream.mapError(stream, (failure): unknown => toError(failure))
  if (signal === undefined) return Stream.toAsyncIterable(failing)
  // The signal may have ended the stream by now.
  const ending = Stream.suspend(() => (signal.aborted ? Stream.fail(signal.reason) : Stream.empty))
  return failing.pipe(Stream.interruptWhen(aborted(signal)), Stream.concat(ending), Stream.toAsyncIterable)
}

export interface PromiseConsole {
  /** The lines from now on, for one reader; ends when the console is closed or the server is deleted. */
  readonly lines: AsyncIterable<string>
  readonly send: (line: string, options?: CallOptions) => Promise<void>
  readonly close: () => Promise<void>
}

type Call<E extends HttpApiEndpoint.ConstraintRequest> =
  Record<never, never> extends RequestOf<E>
    ? (request?: RequestOf<E>, options?: CallOptions) => Promise<HttpApiClient.SuccessType<E["~Success"]>>
    : (request: RequestOf<E>, options?: CallOptions) => Promise<HttpApiClient.SuccessType<E["~Success"]>>

/** The endpoints that respond with a body; streams are `follow` and `console`. */
type Plain<Endpoints> = {
  readonly [Name in keyof Endpoints as Endpoints[Name] extends { readonly "~Success": infer S }
    ? HttpApiClient.SuccessType<S> extends Stream.Stream<infer _A, infer _E>
      ? never
      : Name
    : never]: Endpoints[Name] extends HttpApiEndpoint.ConstraintRequest ? Call<Endpoints[Name]> : never
}

type PlainCalls = {
  readonly [Group in NamedGroup as HttpApiGroup.Identifier<Group>]: HttpApiGroup.Identifier<Group> extends "servers"
    ? Omit<Plain<EndpointsOf<Group>>, "create"> & CreationCalls
    : Plain<EndpointsOf<Group>>
} & Plain<TopLevel>

interface CreationCalls {
  readonly create: (request: Creation, options?: CallOptions) => Promise<Server>
  /** Returns what `create` would do; nothing is created. */
  readonly dryRun: (request: DryRun, options?: CallOptions) => Promise<CreationPlan>
}

/** The calls of the contract as functions, and what takes several of them. */
export type Muster = PlainCalls & {
  /** Lists all servers that match, with the cursor of the list. */
  readonly list: (options?: ListOptions, call?: CallOptions) => Promise<Snapshot>
  /** Follows the changes of servers, without a gap, until the loop or the signal ends. */
  readonly follow: (options?: FollowOptions & CallOptions) => AsyncIterable<Change | Reset>
  /** Waits until a server is in a state; `timeout` in milliseconds, default 5 minutes. */
  readonly waitUntil: (
    server: ServerId | string,
    state: WaitState,
    options?: WaitOptions & CallOptions
  ) => Promise<Server>
  /** Waits until an operation has ended, and returns it: `done`, `failed` or `cancelled`. */
  readonly operationEnd: (
    begun: Operation | string,
    options?: OperationOptions & CallOptions
  ) => Promise<Operation>
  /** Opens the console of a server until it is closed or the signal is aborted. */
  readonly console: (server: ServerId | string, options?: CallOptions) => Promise<PromiseConsole>
  /** Reads a file, and resumes where the connection breaks. */
  readonly download: (
    server: ServerId | string,
    path: string,
    options?: DownloadOptions & CallOptions
  ) => AsyncIterable<Uint8Array>
  /** Reads a backup, or one file of it, and resumes where the connection breaks. */
  readonly downloadBackup: (
    backup: string,
    options?: BackupDownloadOptions & CallOptions
  ) => AsyncIterable<Uint8Array>
  /** Lists a folder by name, page by page. */
  readonly folder: (
    server: ServerId | string,
    path: string,
    options?: FolderOptions & CallOptions
  ) => AsyncIterable<FileEntry>
  /** Lists a folder of a backup by name, page by page. */
  readonly backupFolder: (backup: string, path: string, options?: CallOptions) => AsyncIterable<BackupEntry>
  /** Unpacks an archive into a folder while it is sent. If `contents` is a function, it is called once. */
  readonly unpack: (
    server: ServerId | string,
    folder: string,
    contents: Contents,
    options?: UnpackOptions & CallOptions
  ) => Promise<Operation>
  /** Writes a file. If `contents` is a function, each attempt calls it for new ones. */
  readonly upload: (
    server: ServerId | string,
    path: string,
    contents: Contents,
    options?: UploadOptions & CallOptions
  ) => Promise<{ readonly created: boolean; readonly etag: string }>
  /** Writes a file of any size, and continues where the connection breaks; also one that an earlier call has begun. */
  readonly uploadResumable: (
    server: ServerId | string,
    path: string,
    contents: ContentsInParts,
    options?: ResumableOptions & CallOptions
  ) => Promise<{ readonly etag: string }>
}

/** The contents of an upload cannot be read: its promise rejects with the reason. */
class ContentsFailed extends Data.TaggedError("ContentsFailed")<{ readonly reason: unknown }> {}

/** The contents of an upload. */
export type Contents = Blob | Uint8Array | string | (() => AsyncIterable<Uint8Array>)

/** The contents of a resumable upload; `bytes` returns those from `start`, inclusive, to `end`, exclusive. */
export type ContentsInParts =
  | Blob
  | Uint8Array
  | {
      readonly size: number
      readonly bytes: (start: number, end: number) => AsyncIterable<Uint8Array>
    }

const partsOf = (contents: ContentsInParts): ResumableContents<ContentsFailed> =>
  isBlob(contents) || contents instanceof Uint8Array
    ? contents
    : { size: contents.size, bytes: (start, end) => bytesOf(() => contents.bytes(start, end)) }

const bytesOf = (contents: () => AsyncIterable<Uint8Array>) =>
  Stream.suspend(() => Stream.fromAsyncIterable(contents(), (reason) => new ContentsFailed({ reason })))

const bodyOf = (contents: Contents) => (typeof contents === "function" ? bytesOf(contents) : contents)

/** Makes the client of a service. Nothing is sent before the first call. */
export const connect = (options: { readonly baseUrl: string; readonly key: string }): Muster => {
  const client = Effect.runSync(
    makeClient({ baseUrl: options.baseUrl, key: Redacted.make(options.key) }).pipe(Effect.provide(Platform))
  )
  const {
    console,
    download,
    backupFolder,
    downloadBackup,
    folder,
    follow,
    list,
    operationEnd,
    unpack,
    upload,
    uploadResumable,
    waitUntil,
    ...calls
  } = client
  const own: Omit<Muster, keyof PlainCalls> = {
    list: (wanted, call) => run(list(wanted), call),
    follow: (options = {}) => {
      // The service would refuse it as a parameter.
      const { signal: _, ...wanted } = options
      return iterate(follow(wanted), options)
    },
    waitUntil: (server, state, options = {}) => run(waitUntil(server, state, options), options),
    operationEnd: (begun, options = {}) => run(operationEnd(begun, options), options),
    download: (server, path, options = {}) => iterate(download(server, path, options), options),
    downloadBackup: (backup, options = {}) => iterate(downloadBackup(backup, options), options),
    backupFolder: (backup, path, options = {}) => iterate(backupFolder(backup, path), options),
    folder: (server, path, options = {}) => iterate(folder(server, path, options), options),
    unpack: (server, folder, contents, options = {}) =>
      run(unpack(server, folder, bodyOf(contents), options), options),
    upload: (server, path, contents, options = {}) =>
      run(upload(server, path, bodyOf(contents), options), options),
    uploadResumable: (server, path, contents, options = {}) =>
      run(uploadResumable(server, path, partsOf(contents), options), options),
    console: (server, call = {}) => {
      const scope = Scope.makeUnsafe()
      const close = () => run(Scope.close(scope, Exit.void))
      const opening = Effect.onError(Scope.provide(console(server), scope), () =>
        Scope.close(scope, Exit.void)
      )
      return run(opening, call).then(({ lines, send }) => {
        call.signal?.addEventListener("abort", close, { once: true })
        return { lines: iterate(lines, call), send: (line, options) => run(send(line), options), close }
      })
    }
  }
  const plain = mapCalls(calls, (call) => (request?: unknown, options?: CallOptions) => {
    const called = call(request)
    // Each call of the client is an effect without requirements.
    return Effect.isEffect(called) ? run(called as Effect.Effect<unknown, unknown>, options) : called
  })
  // The same names and requests as those of the calls, with promises as results.
  return { ...(plain as PlainCalls), ...own }
}
