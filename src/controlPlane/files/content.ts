/** Reads and writes of whole files and of ranges, with their heads (spec 10.3; RFC 9110, 6266 and 9530). */
import { Effect, Stream } from "effect"
import { type HttpServerRequest, HttpServerRespondable, HttpServerResponse } from "effect/http"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import {
  Conflict,
  InvalidRequest,
  PreconditionFailed,
  RangeNotSatisfiable
} from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { NodeFiles, TaggedEntry } from "../../contract/nodeApi/NodeFiles.ts"
import { isKnown } from "../http/conditional.ts"
import { requirePath } from "../http/Principal.ts"
import { type makeNodeAccess, unasked } from "./nodeAccess.ts"

export const OCTETS = "application/octet-stream"

/** Bytes `start` to `end`, both included. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

const single = /^\s*bytes\s*=\s*(\d{0,15})\s*-\s*(\d{0,15})\s*$/i

/** Returns the range of a header; undefined: the whole file, also for several ranges and an unreadable one. */
export const rangeOf = (
  header: string | undefined,
  size: number
): ByteRange | "unsatisfiable" | undefined => {
  const [, first = "", last = ""] = single.exec(header ?? "") ?? []
  if (first === "" && last === "") return undefined
  if (first === "") {
    const start = Math.max(0, size - Number(last))
    return start === size ? "unsatisfiable" : { start, end: size - 1 }
  }
  const start = Number(first)
  const end = last === "" ? size - 1 : Math.min(Number(last), size - 1)
  if (last !== "" && Number(last) < start) return undefined
  return start >= size ? "unsatisfiable" : { start, end }
}

/** Returns `attachment` with the name of a file, in ASCII and in UTF-8. */
export const attachment = (name: string): string => {
  const ascii = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_")
  const encoded = encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`
  )
  return `attachment; filename="${ascii}"; filename*=UTF-8''${encoded}`
}

/** Bytes with a strong tag, and the name under which browsers store them. */
interface Tagged {
  readonly etag: string
  readonly name: string
  readonly size: number
}

/** The headers of a download: no browser shows it, or runs it, on this origin. */
const fileHeaders = ({ etag, name }: Tagged) => ({
  etag,
  "accept-ranges": "bytes",
  "content-disposition": attachment(name),
  "content-security-policy": "default-src 'none'; sandbox"
})

const outside = (size: number, range: string) =>
  Effect.map(
    HttpServerRespondable.toResponse(
      new RangeNotSatisfiable({ detail: `the file has ${size} bytes, and none of ${range.slice(0, 100)}` })
    ),
    HttpServerResponse.setHeader("content-range", `bytes */${size}`)
  )

/** Responds to a download, of all bytes or of a range. `open` returns the bytes. */
export const respondWithBytes = Effect.fnUntraced(function* <E, E2, R>(
  { headers, method }: HttpServerRequest.HttpServerRequest,
  tagged: Tagged,
  open: (range: ByteRange, isWhole: boolean) => Effect.Effect<Stream.Stream<Uint8Array, E2>, E, R>
) {
  const { etag, size } = tagged
  const common = fileHeaders(tagged)
  if (isKnown({ headers }, etag)) return HttpServerResponse.empty({ status: 304, headers: common })
  if (method === "HEAD") {
    return HttpServerResponse.empty({
      status: 200,
      headers: { ...common, "content-type": OCTETS, "content-length": String(size) }
    })
  }
  const counts = headers["if-range"] === undefined || headers["if-range"] === etag
  const range = counts ? rangeOf(headers.range, size) : undefined
  if (range === "unsatisfiable") return yield* outside(size, headers.range ?? "")
  if (size === 0)
    return HttpServerResponse.uint8Array(new Uint8Array(), { contentType: OCTETS, headers: common })
  const { end, start } = range ?? { start: 0, end: size - 1 }
  return HttpServerResponse.stream(yield* open({ start, end }, range === undefined), {
    status: range === undefined ? 200 : 206,
    contentType: OCTETS,
    contentLength: end - start + 1,
    headers: {
      ...common,
      ...(range === undefined ? {} : { "content-range": `bytes ${start}-${end}/${size}` })
    }
  })
})

/** Returns the SHA-256 of a `Content-Digest`, in base64; null: the header has one that cannot be read. */
export const sha256Of = (header: string | undefined): string | null | undefined => {
  const given = header
    ?.split(",")
    .map((member) => member.trim())
    .find((member) => /^sha-256\s*(?:=|$)/.test(member))
  if (given === undefined) return undefined
  return /^sha-256=:([A-Za-z0-9+/]{43}=):$/.exec(given)?.[1] ?? null
}

/** Returns the tags of `If-Match`, or `*`. */
export const tagsOf = (header: string): ReadonlyArray<string> | "*" =>
  header.trim() === "*" ? "*" : (header.match(/(?:W\/)?"[^"]*"/g) ?? [])

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
