import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { BadRequest, ChecksumMismatch, Locked, PreconditionFailed } from "../domain/errors.ts"
import { onNode } from "./endpoint.ts"
import { bytes, header } from "./FilesGroup.ts"
import { Authorization, ReadableServers } from "./middleware.ts"

export const TUS_VERSION = "1.0.0"

/** Every response has these headers; clients of tus ask for them with `OPTIONS`. */
const responseHeaders = {
  "tus-resumable": TUS_VERSION,
  "tus-version": TUS_VERSION,
  "tus-extension": "creation,creation-with-upload,expiration,checksum,termination",
  "tus-checksum-algorithm": "sha1,sha256"
}

const errors = [PreconditionFailed, Locked, ChecksumMismatch] as const
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

const { del, get, patch, post } = onNode

/** Resumable uploads to servers, as of tus 1.0 (spec 10.8). */
export class UploadsGroup extends HttpApiGroup.make("uploads")
  .add(
    post(
      "create",
      "/servers/:server/files/uploads",
      "Begin a resumable upload (tus 1.0); the body may have its first bytes",
      {
        right: "files",
        audited: "file.write",
        transfers: true,
        responseHeaders,
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
        errors: ofBytes
      }
    ),
    get(
      "find",
      "/servers/:server/files/uploads/:upload",
      "The state of an upload; HEAD returns it as headers of tus",
      {
        right: "files",
        responseHeaders,
        headers: { "tus-resumable": version },
        success: Upload,
        errors: errors
      }
    ),
    patch(
      "append",
      "/servers/:server/files/uploads/:upload",
      "Add bytes to an upload; the last one puts the file in place",
      {
        right: "files",
        audited: "file.write",
        transfers: true,
        responseHeaders,
        headers: {
          "tus-resumable": version,
          "upload-offset": header("The bytes that the upload has; another number is 409."),
          "upload-checksum": checksum
        },
        payload: bytes,
        success: HttpApiSchema.Empty(204),
        errors: ofBytes
      }
    ),
    del("end", "/servers/:server/files/uploads/:upload", "Remove an unfinished upload", {
      right: "files",
      responseHeaders,
      headers: { "tus-resumable": version },
      success: HttpApiSchema.Empty(204),
      errors: errors
    })
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Resumable uploads" })) {}
