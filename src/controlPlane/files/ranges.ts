/** The heads of requests and responses with the contents of a file (RFC 9110, 6266 and 9530). */
import type { TaggedEntry } from "../../contract/nodeApi/NodeFiles.ts"

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

/** The headers of a file: no browser shows it, or runs it, on this origin. */
export const fileHeaders = ({ entry, etag }: TaggedEntry) => ({
  etag,
  "accept-ranges": "bytes",
  "content-disposition": attachment(entry.name),
  "content-security-policy": "default-src 'none'; sandbox"
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
