/** The wire of {@link NodeFiles}, between the control plane and a daemon (spec 10.5). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSchema, OpenApi } from "effect/http-api"
import { Policy, route } from "../api/middleware.ts"
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

const params = { id: ServerId }
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

const bytes = HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" })
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

/** The calls of {@link NodeFiles}. Contents are streams without limit and deadline. */
export class NodeFilesGroup extends HttpApiGroup.make("nodeFiles")
  .add(
    HttpApiEndpoint.get("list", "/servers/:id/access", {
      params,
      query: { path: Schema.String, after: text, limit: whole, sizes: text },
      success: Schema.Struct({ entries: Schema.Array(FileEntry), next: text }),
      error: refusals
    }).annotateMerge(route("A page of a folder of a server")),
    HttpApiEndpoint.get("entry", "/servers/:id/access/entry", {
      params,
      query: { path: Schema.String },
      success: Schema.Struct({ entry: FileEntry, etag: Schema.String }),
      error: refusals
    }).annotateMerge(route("An entry of a folder of a server, with its tag")),
    HttpApiEndpoint.get("read", "/servers/:id/access/content", {
      params,
      query: { path: Schema.String, start: whole, end: whole, etag: text },
      success: bytes,
      error: refusals
    }).annotateMerge(route("Bytes of a file", { transfers: true })),
    HttpApiEndpoint.put("write", "/servers/:id/access/content", {
      params,
      query: {
        path: Schema.String,
        if_match: text,
        if_none_match: Schema.optionalKey(Schema.Literal("*")),
        mode: Schema.optionalKey(FileMode),
        sha256: text,
        size: whole
      },
      payload: bytes,
      success: Schema.Struct({ created: Schema.Boolean, etag: Schema.String }),
      error: refusals
    }).annotateMerge(route("Replace a file once its last byte is on disk", { transfers: true })),
    HttpApiEndpoint.post("change", "/servers/:id/access/changes", {
      params,
      payload: Schema.Struct({ changes: Schema.Array(FileChange).check(Schema.isMaxLength(MOST_ENTRIES)) }),
      /** Without outcomes, the changes are too large for one call, and none is made. */
      success: Schema.Struct({ outcomes: Schema.optionalKey(Schema.Array(Outcome)) }),
      error: refusals
    }).annotateMerge(route("Make folders, delete, move and copy, in order", { longestWait: 570 })),
    HttpApiEndpoint.post("begin", "/servers/:id/access/tasks", {
      params,
      payload: TaskRequest,
      success: FileTaskState,
      error: refusals
    }).annotateMerge(route("Begin or continue the task of an operation", largeTask)),
    HttpApiEndpoint.get("progress", "/servers/:id/access/tasks/:operation", {
      params: { ...params, operation: OperationId },
      success: FileTaskState,
      error: refusals
    }).annotateMerge(route("State of the task of an operation")),
    HttpApiEndpoint.post("cancel", "/servers/:id/access/tasks/cancel", {
      params,
      payload: TaskRequest,
      error: refusals
    }).annotateMerge(route("Cancel the task of an operation", largeTask)),
    HttpApiEndpoint.put("receive", "/servers/:id/access/archive", {
      params,
      query: {
        operation_id: OperationId,
        to: Schema.String,
        overwrite: Overwrite,
        format: Schema.optionalKey(ArchiveFormat),
        size: whole
      },
      payload: bytes,
      error: refusals
    }).annotateMerge(route("Unpack an archive while it arrives", { transfers: true })),
    HttpApiEndpoint.post("archive", "/servers/:id/access/archive", {
      params,
      payload: Schema.Struct({ paths, format: ArchiveFormat }),
      success: bytes,
      error: refusals
    }).annotateMerge(route("Files and folders as an archive", { transfers: true })),
    HttpApiEndpoint.post("search", "/servers/:id/access/search", {
      params,
      payload: SearchFiles,
      success: Schema.Struct({ matches: Schema.Array(FileMatch), incomplete: Schema.Boolean }),
      error: refusals
    }).annotateMerge(route("Files by name and by text")),
    HttpApiEndpoint.get("diff", "/servers/:id/access/diff", {
      params,
      success: Schema.Struct({ differences: Schema.Array(FileDifference) }),
      error: refusals
    }).annotateMerge(route("What a server has written over its base")),
    HttpApiEndpoint.get("session", "/servers/:id/access/session", {
      params,
      success: HttpApiSchema.Empty(101),
      error: [...refusals, UpgradeRequired]
    }).annotateMerge(route("Random access to files, over WebSocket", { isStream: true }))
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Files of servers" })) {}
