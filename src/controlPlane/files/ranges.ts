/** The heads of requests and responses with the contents of a file (RFC 9110, 6266 and 9530). */
import { Effect, type Stream } from "effect"
import { type HttpServerRequest, HttpServerRespondable, HttpServerResponse } from "effect/http"
import { RangeNotSatisfiable } from "../../contract/domain/errors.ts"
import { isKnown } from "../http/conditional.ts"

export const OCTETS = "application/octet-stream"

/** Bytes `start` to `end`, both included. */
export interface ByteRange {
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
