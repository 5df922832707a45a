/** The wire of {@link NodeFiles}, between the control plane and a daemon (spec 10.5). */
import { Schema } from "effect"
import { HttpApiGroup, HttpApiMiddleware, HttpApiSchema, OpenApi } from "effect/http-api"
import { endpoints } from "../api/endpoint.ts"
import { Policy } from "../api/middleware.ts"
import {
  Conflict,
  Forbidden,
  InsufficientStorage,
  InvalidRequest,
  NotFound,
  PreconditionFailed,
  RangeNotSatisfiable,
  TooManyRequests,
  Unauthorized,
  UpgradeRequired
} from "../domain/errors.ts"
import { ArchiveFormat, FileChange, FileDifference, FileEntry, FileMatch, FileMode } from "../domain/Files.ts"
import { FileTask, FileTaskState, MOST_CHANGES, OperationId, Overwrite } from "../domain/FileTask.ts"
import { ServerId } from "../domain/Id.ts"
import { type FileRefused, MOST_ENTRIES } from "./NodeFiles.ts"

/** Declares the errors of all calls: refusals, and no token of the last registration, which the pipeline checks. */
export class DaemonAuthorization extends HttpApiMiddleware.Service<DaemonAuthorization>()(
  "muster/api/DaemonAuthorization",
  { error: [Unauthorized, NotFound, Conflict] }
) {}

/** Most paths of an archive. */
export const MOST_PATHS = 1000

const text = Schema.optionalKey(Schema.String)
export const whole = Schema.optionalKey(
  Schema.FiniteFromString.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))
)

/** The errors of calls that a node refuses. */
export const refusals = [
  Forbidden,
  PreconditionFailed,
  RangeNotSatisfiable,
  TooManyRequests,
  InsufficientStorage
] as const

/** The errors of refusals by their statuses, as daemons and the service respond. */
export const refusalErrors = {
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  412: PreconditionFailed,
  416: RangeNotSatisfiable,
  422: InvalidRequest,
  429: TooManyRequests,
  507: InsufficientStorage
} as const

export const refusalError = ({ detail, hint, status }: Pick<FileRefused, "detail" | "hint" | "status">) =>
  new refusalErrors[status]({ detail, hint })

/** The outcome of a change: nothing, or the refusal. */
const Outcome = Schema.Struct({
  refused: Schema.optionalKey(
    Schema.Struct({ status: Schema.Int, detail: Schema.String, hint: Schema.String })
  )
})

const TaskRequest = Schema.Struct({ operation_id: OperationId, task: FileTask })

/** Values and bytes of a task: each change has up to six values, and two paths of 4,096 bytes. */
const largeTask = { mostValues: 6 * MOST_CHANGES, largeBody: 16 * 1024 * 1024 }

export const bytes = HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" })
/** `name`: a glob of names. `text`: a literal text; without it, files are found by name alone. */
const SearchFiles = Schema.Struct({
  path: Schema.String,
  name: text,
  text,
  case_sensitive: Schema.Boolean,
  limit: Schema.Int
})
export type SearchFiles = typeof SearchFiles.Type
const paths = Schema.Array(Schema.String).check(Schema.isMaxLength(MOST_PATHS))

const { get, post, put } = endpoints({ id: ServerId, operation: OperationId }, refusals)

/** The calls of {@link NodeFiles}. Contents are streams without limit and deadline. */
export class NodeFilesGroup extends HttpApiGroup.make("nodeFiles")
  .add(
    get("list", "/servers/:id/access", "A page of a folder of a server", {
      query: { path: Schema.String, after: text, limit: whole, sizes: text },
      success: Schema.Struct({ entries: Schema.Array(FileEntry), next: text })
    }),
    get("entry", "/servers/:id/access/entry", "An entry of a folder of a server, with its tag", {
      query: { path: Schema.String },
      success: Schema.Struct({ entry: FileEntry, etag: Schema.String })
    }),
    get("read", "/servers/:id/access/content", "Bytes of a file", {
      transfers: true,
      query: { path: Schema.String, start: whole, end: whole, etag: text },
      success: bytes
    }),
    put("write", "/servers/:id/access/content", "Replace a file once its last byte is on disk", {
      transfers: true,
      query: {
        path: Schema.String,
        if_match: text,
        if_none_match: Schema.optionalKey(Schema.Literal("*")),
        mode: Schema.optionalKey(FileMode),
        sha256: text,
        size: whole
      },
      payload: bytes,
      success: Schema.Struct({ created: Schema.Boolean, etag: Schema.String })
    }),
    post("change", "/servers/:id/access/changes", "Make folders, delete, move and copy, in order", {
      longestWait: 570,
      payload: Schema.Struct({ changes: Schema.Array(FileChange).check(Schema.isMaxLength(MOST_ENTRIES)) }),
      /** Without outcomes, the changes are too large for one call, and none is made. */
      success: Schema.Struct({ outcomes: Schema.optionalKey(Schema.Array(Outcome)) })
    }),
    post("begin", "/servers/:id/access/tasks", "Begin or continue the task of an operation", {
      ...largeTask,
      payload: TaskRequest,
      success: FileTaskState
    }),
    get("progress", "/servers/:id/access/tasks/:operation", "State of the task of an operation", {
      success: FileTaskState
    }),
    post("cancel", "/servers/:id/access/tasks/cancel", "Cancel the task of an operation", {
      ...largeTask,
      payload: TaskRequest
    }),
    put("receive", "/servers/:id/access/archive", "Unpack an archive while it arrives", {
      transfers: true,
      query: {
        operation_id: OperationId,
        to: Schema.String,
        overwrite: Overwrite,
        format: Schema.optionalKey(ArchiveFormat),
        size: whole
      },
      payload: bytes
    }),
    post("archive", "/servers/:id/access/archive", "Files and folders as an archive", {
      transfers: true,
      payload: Schema.Struct({ paths, format: ArchiveFormat }),
      success: bytes
    }),
    post("search", "/servers/:id/access/search", "Files by name and by text", {
      payload: SearchFiles,
      success: Schema.Struct({ matches: Schema.Array(FileMatch), incomplete: Schema.Boolean })
    }),
    get("diff", "/servers/:id/access/diff", "What a server has written over its base", {
      success: Schema.Struct({ differences: Schema.Array(FileDifference) })
    }),
    get("session", "/servers/:id/access/session", "Random access to files, over WebSocket", {
      isStream: true,
      success: HttpApiSchema.Empty(101),
      errors: [UpgradeRequired]
    })
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Files of servers" })) {}
