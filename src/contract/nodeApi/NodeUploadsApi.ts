/** The wire of {@link NodeUploads}, between the control plane and a daemon (spec 10.8). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Policy, route } from "../api/routePolicy.ts"
import { BodyTooLarge, ChecksumMismatch, Locked } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { DaemonAuthorization } from "./DaemonAuthorization.ts"
import { refusals, whole } from "./NodeFilesApi.ts"
import {
  ChecksumAlgorithm,
  MOST_OWNERS,
  UploadId,
  type UploadRefused,
  UploadRequest,
  UploadState
} from "./NodeUploads.ts"

const params = { id: ServerId, upload: UploadId }
const owner = Schema.String
const error = [...refusals, BodyTooLarge, Locked, ChecksumMismatch] as const

/** Returns the error of a refusal, as daemons and the service respond. */
export const uploadRefusalError = ({ detail, hint, status }: UploadRefused) => {
  switch (status) {
    case 413:
      return new BodyTooLarge({ detail, hint })
    case 423:
      return new Locked({ detail, hint })
    case 460:
      return new ChecksumMismatch({ detail, hint })
  }
}

/** The calls of {@link NodeUploads}. */
export class NodeUploadsGroup extends HttpApiGroup.make("nodeUploads")
  .add(
    HttpApiEndpoint.post("begin", "/servers/:id/access/uploads", {
      params: { id: ServerId },
      payload: UploadRequest,
      success: UploadState,
      error
    }).annotateMerge(route("Begin an upload")),
    HttpApiEndpoint.get("find", "/servers/:id/access/uploads/:upload", {
      params,
      query: { owner },
      success: UploadState,
      error
    }).annotateMerge(route("State of an upload")),
    HttpApiEndpoint.patch("append", "/servers/:id/access/uploads/:upload", {
      params,
      query: {
        owner,
        offset: Schema.FiniteFromString,
        length: whole,
        algorithm: Schema.optionalKey(ChecksumAlgorithm),
        checksum: Schema.optionalKey(Schema.String)
      },
      payload: HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" }),
      success: UploadState,
      error
    }).annotateMerge(route("Add bytes to an upload", { transfers: true })),
    HttpApiEndpoint.delete("end", "/servers/:id/access/uploads/:upload", {
      params,
      query: { owner },
      error
    }).annotateMerge(route("Remove an unfinished upload")),
    HttpApiEndpoint.post("endOf", "/uploads/end", {
      payload: Schema.Struct({ owners: Schema.Array(owner).check(Schema.isMaxLength(MOST_OWNERS)) }),
      error: refusals
    }).annotateMerge(route("Remove the unfinished uploads of keys"))
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Uploads to servers" })) {}
