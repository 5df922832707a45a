import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { BadRequest, BodyTooLarge, ChecksumMismatch, Locked, PreconditionFailed } from "../domain/errors.ts"
import { bytes, errorsOfNode, header, ofServer } from "./FilesGroup.ts"
import { Authorization, ReadableServers, route } from "./middleware.ts"

export const TUS_VERSION = "1.0.0"

/** Every response has these headers; clients of tus ask for them with `OPTIONS`. */
const headers = {
  "tus-resumable": TUS_VERSION,
  "tus-version": TUS_VERSION,
  "tus-extension": "creation,creation-with-upload,expiration,checksum,termination",
  "tus-checksum-algorithm": "sha1,sha256"
}

const params = {
  ...ofServer,
  upload: Schema.String.annotate({ description: "The id of the upload, from `Location`." })
}
const errors = [...errorsOfNode, PreconditionFailed, BodyTooLarge, Locked, ChecksumMismatch] as const
const ofBytes = [...errors, BadRequest] as const

const version = header("`1.0.0`; another version is 412.")
const checksum = header("`sha1` or `sha256`, a space, and the digest of the body in base64.")

/** The state of an upload (spec 10.8). */
export const Upload = Schema.Struct({
  path: Schema.String,
  /** Bytes of the whole file. */
  size: Schema.Int,
  /** Bytes that are on the disk of the node. */
  offset: Schema.Int,
  expires_at: Schema.String,
  /** The tag of the file, once it is in place. */
  etag: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "Upload" })

/** Resumable uploads to servers, as of tus 1.0 (spec 10.8). */
export class UploadsGroup extends HttpApiGroup.make("uploads")
  .add(
    HttpApiEndpoint.post("create", "/servers/:server/files/uploads", {
      params: ofServer,
      headers: {
        "tus-resumable": version,
        "upload-length": header("Bytes of the whole file."),
        "upload-metadata": header(
          "`path`, and optionally `mode`, `if-match` and `overwrite` (`fail` or `replace`): names, each with a value in base64, separated by commas."
        ),
        "upload-checksum": checksum
      },
      payload: bytes,
      success: HttpApiSchema.Empty(201),
      error: ofBytes
    }).annotateMerge(
      route("Begin a resumable upload (tus 1.0); the body may have its first bytes", {
        right: "files",
        audited: "file.write",
        transfers: true,
        headers
      })
    ),
    HttpApiEndpoint.get("find", "/servers/:server/files/uploads/:upload", {
      params,
      headers: { "tus-resumable": version },
      success: Upload,
      error: errors
    }).annotateMerge(
      route("The state of an upload; HEAD returns it as headers of tus", { right: "files", headers })
    ),
    HttpApiEndpoint.patch("append", "/servers/:server/files/uploads/:upload", {
      params,
      headers: {
        "tus-resumable": version,
        "upload-offset": header("The bytes that the upload has; another number is 409."),
        "upload-checksum": checksum
      },
      payload: bytes,
      success: HttpApiSchema.Empty(204),
      error: ofBytes
    }).annotateMerge(
      route("Add bytes to an upload; the last one puts the file in place", {
        right: "files",
        audited: "file.write",
        transfers: true,
        headers
      })
    ),
    HttpApiEndpoint.delete("end", "/servers/:server/files/uploads/:upload", {
      params,
      headers: { "tus-resumable": version },
      success: HttpApiSchema.Empty(204),
      error: errors
    }).annotateMerge(route("Remove an unfinished upload", { right: "files", headers }))
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Resumable uploads" })) {}
