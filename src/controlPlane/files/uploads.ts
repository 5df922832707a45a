import { randomBytes } from "node:crypto"
import { Effect, Result, Schema, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { CurrentAudit, describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import {
  type NodeUploads,
  refusalAsResult,
  type UploadError,
  UploadId,
  uploadRefusalError
} from "../../contract/nodeApi/NodeUploadsApi.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, requirePath } from "../http/Principal.ts"
import { makeNodeAccess, unasked } from "./nodeAccess.ts"
import { bytesIn, checksumOf, checkVersion, uploadHeaders, wishOf } from "./uploadHeaders.ts"

type Request = HttpServerRequest.HttpServerRequest

const isUploadId = Schema.is(UploadId)

const noUpload = (id: string) =>
  new NotFound({
    detail: `no such upload: ${id.slice(0, 100)}`,
    hint: "It has expired, was ended, or belongs to another key: begin it again."
  })

const lengthOf = ({ headers }: Request) => {
  const length = headers["content-length"]
  return length === undefined ? {} : { length: Number(length) }
}

/** The audit entry is due once the last byte has arrived: from then on, the node may put the file in place. */
const auditedAtEnd = Effect.fnUntraced(function* (
  bytes: Stream.Stream<Uint8Array, unknown>,
  { offset, path, size }: { readonly path: string; readonly offset: number; readonly size: number }
) {
  const audit = yield* CurrentAudit
  yield* describeAudit({ paths: [path] })
  let at = offset
  const arrived = (count: number) => {
    at += count
    if (audit !== undefined) audit.isChange = at >= size
  }
  arrived(0)
  return Stream.orDie(Stream.tap(bytes, ({ length }) => Effect.sync(() => arrived(length))))
})

/** Handlers of the routes of resumable uploads (spec 10.8). */
export const UploadsHandlers = handlersOf(
  ApplicationApi,
  "uploads",
  Effect.fn(function* (handlers) {
    const nodes = yield* makeNodeAccess
    const on = Effect.fnUntraced(function* <A>(
      id: ServerId,
      use: (uploads: NodeUploads) => Effect.Effect<A, UploadError>
    ) {
      const asked = nodes.onContent(id, ({ uploads }) => refusalAsResult(use(uploads)))
      const result = yield* Effect.catchTag(asked, "RangeNotSatisfiable", unasked)
      return Result.isSuccess(result) ? result.success : yield* uploadRefusalError(result.failure)
    })
    const owned = Effect.fnUntraced(function* (upload_id: string) {
      if (!isUploadId(upload_id)) return yield* noUpload(upload_id)
      return { upload_id, owner: (yield* CurrentPrincipal)?.key_id ?? "" }
    })

    const find = Effect.fnUntraced(function* (
      { server, upload }: { readonly server: ServerId; readonly upload: string },
      request: Request
    ) {
      yield* checkVersion(request)
      const of = yield* owned(upload)
      const state = yield* on(server, (uploads) => uploads.find(server, of))
      yield* requirePath(state.path)
      return { of, state }
    })

    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ params: { server: id }, payload, request }) {
        yield* checkVersion(request)
        const size = yield* bytesIn(request, "upload-length")
        const wish = yield* wishOf(request)
        const checksum = yield* checksumOf(request)
        yield* requirePath(wish.path)
        const of = yield* owned(randomBytes(24).toString("base64url"))
        const bytes = yield* auditedAtEnd(payload, { path: wish.path, offset: 0, size })
        const begun = yield* on(id, (uploads) => uploads.begin(id, { ...of, ...wish, size }))
        const hasBytes =
          request.headers["transfer-encoding"] !== undefined || (lengthOf(request).length ?? 0) > 0
        const state =
          hasBytes && size > 0
            ? yield* on(id, (uploads) =>
                uploads
                  .append(id, { ...of, offset: 0, ...lengthOf(request), ...checksum }, bytes)
                  // Without its address, the caller cannot continue the upload.
                  .pipe(Effect.tapError(() => Effect.ignore(uploads.end(id, of))))
              )
            : begun
        return HttpServerResponse.empty({
          status: 201,
          headers: {
            ...uploadHeaders(state),
            location: `/api/servers/${id}/files/uploads/${of.upload_id}`
          }
        })
      }),
      find: Effect.fnUntraced(function* ({ params, request }) {
        const { metadata, ...state } = (yield* find(params, request)).state
        return HttpServerResponse.jsonUnsafe(state, {
          headers: {
            ...uploadHeaders({ metadata, ...state }),
            "upload-length": String(state.size),
            "upload-metadata": metadata
          }
        })
      }),
      append: Effect.fnUntraced(function* ({ params, payload, request }) {
        const offset = yield* bytesIn(request, "upload-offset")
        const checksum = yield* checksumOf(request)
        const { of, state } = yield* find(params, request)
        const bytes = yield* auditedAtEnd(payload, { ...state, offset })
        if (state.etag !== undefined) yield* withoutAudit
        const next = yield* on(params.server, (uploads) =>
          uploads.append(params.server, { ...of, offset, ...lengthOf(request), ...checksum }, bytes)
        )
        return HttpServerResponse.empty({ status: 204, headers: uploadHeaders(next) })
      }),
      end: Effect.fnUntraced(function* ({ params, request }) {
        yield* checkVersion(request)
        const of = yield* owned(params.upload)
        yield* on(params.server, (uploads) => uploads.end(params.server, of))
        return HttpServerResponse.empty({ status: 204 })
      })
    })
  })
)
