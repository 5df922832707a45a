/** The wire of {@link NodeUploads}, between the control plane and a daemon (spec 10.8). */
import { Data, Effect, Result, Schema, type Stream } from "effect"
import { HttpApiGroup, OpenApi } from "effect/http-api"
import { endpoints } from "../api/endpoint.ts"
import { Policy } from "../api/middleware.ts"
import { BodyTooLarge, ChecksumMismatch, Locked } from "../domain/errors.ts"
import { FileMode } from "../domain/Files.ts"
import { ServerId } from "../domain/Id.ts"
import type { FileError } from "./NodeFiles.ts"
import { bytes, DaemonAuthorization, refusals, whole } from "./NodeFilesApi.ts"

/** An id that cannot be guessed: 24 random bytes. */
export const UploadId = Schema.String.check(
  Schema.isPattern(/^[\w-]{32}$/u, { expected: "the id of an upload" })
)

/** Algorithms of `Upload-Checksum`. */
export const ChecksumAlgorithm = Schema.Literals(["sha1", "sha256"])

/** A number of bytes. */
export const Bytes = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))

/** Keys of one call whose uploads are removed. */
export const MOST_OWNERS = 1000

/** An upload that begins. Its conditions hold at its beginning and at its end. */
export const UploadRequest = Schema.Struct({
  /** Chosen by the caller; an upload that exists does not begin again. */
  upload_id: UploadId,
  /** The id of the key that may continue the upload. */
  owner: Schema.String,
  path: Schema.String,
  /** Bytes of the whole file. */
  size: Bytes,
  mode: Schema.optionalKey(FileMode),
  if_match: Schema.optionalKey(Schema.String),
  if_none_match: Schema.optionalKey(Schema.Literal("*")),
  /** `Upload-Metadata`, as the caller has sent it. */
  metadata: Schema.String
})
export type UploadRequest = typeof UploadRequest.Type

export const UploadState = Schema.Struct({
  path: Schema.String,
  size: Bytes,
  /** Bytes that are on the disk of the node. */
  offset: Bytes,
  metadata: Schema.String,
  /** RFC 3339; bytes that arrive move it. */
  expires_at: Schema.String,
  /** The tag of the file, once it is in place. */
  etag: Schema.optionalKey(Schema.String)
})
export type UploadState = typeof UploadState.Type

/** An upload of a key. */
export interface UploadOf {
  readonly upload_id: string
  readonly owner: string
}

/** Bytes of an upload, from `offset`. `length`: their number, if it is known. */
export interface UploadPart extends UploadOf {
  readonly offset: number
  readonly length?: number
  readonly algorithm?: typeof ChecksumAlgorithm.Type
  /** Digest of the bytes, base64. Bytes with another one are discarded: 460. */
  readonly checksum?: string
}

/** The node refuses bytes: 413 more than the upload has, 423 another request sends some, 460 another checksum. */
export class UploadRefused extends Data.TaggedError("UploadRefused")<{
  readonly status: 413 | 423 | 460
  readonly detail: string
  readonly hint: string
}> {}

/** Makes a refusal of bytes a result: the bytes before them stay. */
export const refusalAsResult = <A, E, R>(call: Effect.Effect<A, E | UploadRefused, R>) =>
  call.pipe(
    Effect.map((value): Result.Result<A, UploadRefused> => Result.succeed(value)),
    Effect.catchTag("UploadRefused", (refusal) => Effect.succeed(Result.fail(refusal)))
  )

export type UploadError = FileError | UploadRefused

export interface NodeUploads {
  /** Begins an upload. One of 0 bytes ends at once. */
  begin(id: ServerId, request: UploadRequest): Effect.Effect<UploadState, UploadError>
  /** Returns the state of an upload; 404 if it has expired, was ended, or belongs to another key. */
  find(id: ServerId, of: UploadOf): Effect.Effect<UploadState, UploadError>
  /**
   * Adds bytes; the last one puts the file in place. A failure keeps the bytes so far. {@link FileRefused} is 409 also
   * for another offset.
   */
  append<E>(
    id: ServerId,
    part: UploadPart,
    bytes: Stream.Stream<Uint8Array, E>
  ): Effect.Effect<UploadState, UploadError | E>
  /** Removes an unfinished upload, and ends the request that sends its bytes. */
  end(id: ServerId, of: UploadOf): Effect.Effect<void, UploadError>
  /** Removes the unfinished uploads of keys, to all servers of the node. */
  endOf(owners: ReadonlyArray<string>): Effect.Effect<void, FileError>
}

const owner = Schema.String
const { del, get, patch, post } = endpoints({ id: ServerId, upload: UploadId }, [
  ...refusals,
  Locked,
  ChecksumMismatch
])

const uploadRefusalErrors = { 413: BodyTooLarge, 423: Locked, 460: ChecksumMismatch } as const

/** Returns the error of a refusal, as daemons and the service respond. */
export const uploadRefusalError = ({ detail, hint, status }: UploadRefused) =>
  new uploadRefusalErrors[status]({ detail, hint })

/** The calls of {@link NodeUploads}. */
export class NodeUploadsGroup extends HttpApiGroup.make("nodeUploads")
  .add(
    post("begin", "/servers/:id/access/uploads", "Begin an upload", {
      payload: UploadRequest,
      success: UploadState
    }),
    get("find", "/servers/:id/access/uploads/:upload", "State of an upload", {
      query: { owner },
      success: UploadState
    }),
    patch("append", "/servers/:id/access/uploads/:upload", "Add bytes to an upload", {
      transfers: true,
      query: {
        owner,
        offset: Schema.FiniteFromString,
        length: whole,
        algorithm: Schema.optionalKey(ChecksumAlgorithm),
        checksum: Schema.optionalKey(Schema.String)
      },
      payload: bytes,
      success: UploadState
    }),
    del("end", "/servers/:id/access/uploads/:upload", "Remove an unfinished upload", { query: { owner } }),
    post("endOf", "/uploads/end", "Remove the unfinished uploads of keys", {
      payload: Schema.Struct({ owners: Schema.Array(owner).check(Schema.isMaxLength(MOST_OWNERS)) }),
      errors: refusals
    })
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Uploads to servers" })) {}
