/** Reads and writes of whole files and of ranges (spec 10.3). */
import { Effect, Stream } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpServerResponse } from "effect/http"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest, PreconditionFailed } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { NodeFiles, TaggedEntry } from "../../contract/nodeApi/NodeFiles.ts"
import { requirePath } from "../http/rights.ts"
import { type makeNodeAccess, unasked } from "./nodeAccess.ts"
import { respondWithBytes, sha256Of, tagsOf } from "./ranges.ts"

type Request = HttpServerRequest.HttpServerRequest
type NodeAccess = Effect.Success<typeof makeNodeAccess>

const whats = { folder: "a folder", link: "a link", other: "neither file nor folder" } as const

const noFile = (path: string, { entry: { type } }: TaggedEntry) =>
  type === "file"
    ? undefined
    : new Conflict({
        detail: `${path} is ${whats[type]}`,
        hint:
          type === "folder"
            ? "Download it with GET /api/servers/:server/files/archive."
            : "Name a file; GET /api/servers/:server/files lists what exists."
      })

/** Logs, with `fields`, that a download breaks after its response has begun. */
export const failsLate = <E extends { readonly _tag: string }>(fields: Readonly<Record<string, string>>) =>
  Stream.tapError((error: E) =>
    Effect.logWarning(`a download broke: ${"detail" in error ? error.detail : error._tag}`).pipe(
      Effect.annotateLogs(fields)
    )
  )

/** Returns the response to a download. */
export const makeRead = ({ onContent: on }: NodeAccess) => {
  const send = Effect.fnUntraced(function* (id: ServerId, path: string, request: Request) {
    const tagged = yield* on(id, (files) => files.stat(id, path))
    yield* noFile(path, tagged) ?? Effect.void
    const { entry, etag } = tagged
    return yield* respondWithBytes(request, { etag, name: entry.name, size: entry.size }, (range) =>
      Effect.map(
        on(id, (files) => files.read(id, { path, ...range, etag, isTransient: true })),
        failsLate({ server_id: id, path })
      )
    )
  })

  return Effect.fn("files.read")(function* (id: ServerId, path: string, request: Request) {
    yield* requirePath(path)
    yield* request.method === "HEAD" ? withoutAudit : describeAudit({ paths: [path] })
    // The file may be replaced between the two calls.
    return yield* send(id, path, request).pipe(
      Effect.retry({ times: 1, while: ({ _tag }) => _tag === "PreconditionFailed" })
    )
  })
}

const notAsExpected = (path: string) =>
  new PreconditionFailed({ detail: `${path} has none of the tags of If-Match` })

interface Conditions {
  readonly if_match?: string
  readonly if_none_match?: "*"
}

/** Reads the conditions of a write. @error PreconditionFailed they do not hold */
const makeConditionsOf = ({ on }: NodeAccess) =>
  Effect.fnUntraced(function* (id: ServerId, path: string, { headers }: Request) {
    const none = headers["if-none-match"]?.trim()
    if (none !== undefined && none !== "*") {
      return yield* new InvalidRequest({
        detail: `header if-none-match: expected *, got ${none.slice(0, 100)}`,
        hint: "Send If-Match with the tag of the file to replace only that file."
      })
    }
    const unless: Conditions = none === undefined ? {} : { if_none_match: none }
    const match = headers["if-match"]
    if (match === undefined) return unless
    const tags = tagsOf(match)
    const [only, ...others] = tags === "*" ? [] : tags.filter((tag) => tag.startsWith('"'))
    if (only !== undefined && others.length === 0) return { ...unless, if_match: only }
    if (only === undefined && tags !== "*") return yield* notAsExpected(path)
    const { etag } = yield* on(id, (files) => files.stat(id, path)).pipe(
      Effect.catchTag("NotFound", () => Effect.fail(notAsExpected(path)))
    )
    if (tags !== "*" && !tags.includes(etag)) return yield* notAsExpected(path)
    return { ...unless, if_match: etag }
  })

/** Writes the body of a request; returns 201 or 204. */
export const makeWrite = (access: NodeAccess) => {
  const conditionsOf = makeConditionsOf(access)
  return Effect.fn("files.write")(function* (
    id: ServerId,
    asked: { readonly path: string; readonly mode?: string | undefined },
    request: Request,
    bytes: Parameters<NodeFiles["write"]>[2]
  ) {
    const { mode = "", path } = asked
    yield* requirePath(path)
    yield* describeAudit({ paths: [path] })
    const length = request.headers["content-length"]
    const sha256 = sha256Of(request.headers["content-digest"])
    if (sha256 === null) {
      return yield* new InvalidRequest({
        detail: "header content-digest: expected sha-256=:...:, with 32 bytes in base64",
        hint: "Correct the digest, or leave the header out."
      })
    }
    const { created, etag } = yield* Effect.flatMap(conditionsOf(id, path, request), (conditions) =>
      access.onContent(id, (files) =>
        files.write(
          id,
          {
            path,
            isOwned: true,
            ...conditions,
            ...(mode === "" ? {} : { mode }),
            ...(sha256 === undefined ? {} : { sha256 }),
            ...(length === undefined ? {} : { size: Number(length) })
          },
          Stream.orDie(bytes)
        )
      )
    ).pipe(Effect.catchTag("RangeNotSatisfiable", unasked))
    return HttpServerResponse.empty({ status: created ? 201 : 204, headers: { etag } })
  })
}
