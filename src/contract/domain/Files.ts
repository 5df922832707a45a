/** Files of servers, as callers see them (spec 10). */
import { Schema } from "effect"
import { TimeText } from "./nowText.ts"

const MAX_PATH_BYTES = 4096
const MAX_NAMES = 64
const MAX_NAME_BYTES = 255

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const textOf = (bytes: Uint8Array): string | undefined => {
  try {
    return decoder.decode(bytes)
  } catch {
    return undefined
  }
}

/** The text forms that {@link nameBytes} does not take as they are: a byte that is not ASCII, and a percent sign. */
const escape = /%(?:[89A-F][0-9A-F]|25)/

const escapeByte = (byte: number) => `%${byte.toString(16).toUpperCase()}`

/** Returns the character at a position as its bytes, or undefined if they are not UTF-8. */
const characterAt = (bytes: Uint8Array, at: number): string | undefined => {
  const first = bytes[at] ?? 0
  const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4
  return at + length > bytes.length ? undefined : textOf(bytes.subarray(at, at + length))
}

/** Returns a name as callers see it (spec 10.2): bytes that are not UTF-8 as `%XX`. {@link nameBytes} is the inverse. */
export const shownName = (bytes: Uint8Array): string => {
  let shown = textOf(bytes)
  if (shown !== undefined && !shown.includes("%")) return shown
  shown = ""
  const pieces: Array<{ readonly text: string; readonly isByte: boolean }> = []
  for (let at = 0; at < bytes.length; ) {
    const text = characterAt(bytes, at)
    pieces.push(
      text === undefined ? { text: escapeByte(bytes[at] ?? 0), isByte: true } : { text, isByte: false }
    )
    at += text === undefined ? 1 : encoder.encode(text).length
  }
  for (const [index, { isByte, text }] of pieces.entries()) {
    const next = pieces[index + 1]
    const after = `${next?.text ?? ""}${pieces[index + 2]?.text ?? ""}`
    const isPercent = text === "%" && !isByte
    shown += isPercent && next?.isByte === false && escape.test(`%${after.slice(0, 2)}`) ? "%25" : text
  }
  return shown
}

/** Returns the bytes of a name that a caller gives. */
export const nameBytes = (shown: string): Uint8Array => {
  if (!shown.includes("%")) return encoder.encode(shown)
  const parts = shown.split(/(%(?:[89A-F][0-9A-F]|25))/)
  const bytes = parts.map((part, index) =>
    index % 2 === 1 ? Uint8Array.of(Number.parseInt(part.slice(1), 16)) : encoder.encode(part)
  )
  const all = new Uint8Array(bytes.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of bytes) {
    all.set(part, at)
    at += part.length
  }
  return all
}

/** Returns why a text is no absolute path in an instance, in words that follow the path; undefined: it is one. */
export const whyNoPath = (path: string): string | undefined => {
  if (!path.startsWith("/")) return "does not begin with /"
  if (path === "/") return undefined
  if (path.includes("\0")) return "contains a NUL character"
  if (nameBytes(path).length > MAX_PATH_BYTES) return `is longer than ${MAX_PATH_BYTES} bytes`
  const names = path.slice(1).split("/")
  if (names.some((name) => name === "" || name === ".")) return "has an empty name or `.`"
  if (names.includes("..")) return "contains `..`"
  if (names.some((name) => nameBytes(name).length > MAX_NAME_BYTES))
    return `has a name of more than ${MAX_NAME_BYTES} bytes`
  return names.length > MAX_NAMES ? `is more than ${MAX_NAMES} names deep` : undefined
}

/** An absolute path in an instance, such as `/plugins/x.jar`. Bytes that are not UTF-8 are `%XX` (spec 10.2). */
export const FilePath = Schema.String.check(
  // openapi-generator 5 cuts a slash that ends a pattern.
  Schema.isPattern(/^\/.*/u, {
    expected: "an absolute path such as /plugins/x.jar, without a server before it: it does not begin with /"
  }),
  Schema.makeFilter((path: string) => {
    const why = path.startsWith("/") ? whyNoPath(path) : undefined
    return why === undefined ? undefined : `expected an absolute path such as /plugins/x.jar: it ${why}`
  })
).annotate({ identifier: "FilePath" })

/** Whether `path` is `folder` or below it. */
export const isWithin = (folder: string, path: string): boolean =>
  folder === "/" || path === folder || path.startsWith(`${folder}/`)

/** Returns the path of the folder that has a path; of `/`, it is `/`. */
export const parentOf = (path: string): string => path.slice(0, Math.max(1, path.lastIndexOf("/")))

/** Returns the path of a name in a folder. */
export const childPath = (folder: string, name: string): string =>
  folder === "/" ? `/${name}` : `${folder}/${name}`

/** Returns the last name of a path; of `/`, an empty one. */
export const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/** The end of the year 9999, in ms since the epoch: later times have texts of another form. */
const LATEST = 253_402_300_799_999

/** Returns a time of a file, which a server may set to any value, as RFC 3339. @param millis since the epoch */
export const timeOfFile = (millis: number): string =>
  new Date(Math.min(LATEST, Math.max(0, millis))).toISOString()

/** Returns permission bits as octal digits. */
export const modeText = (permissions: number): string => `0${permissions.toString(8).padStart(3, "0")}`

export const FileType = Schema.Literals(["file", "folder", "link", "other"])
export type FileType = typeof FileType.Type

/** Permission bits, in octal digits. */
export const FileMode = Schema.String.check(
  Schema.isPattern(/^0?[0-7]{3}$/u, { expected: "permissions such as 0644" })
)

/** An entry of a folder. `managed`: keys that config patches write at the next start. */
export const FileEntry = Schema.Struct({
  name: Schema.String,
  type: FileType,
  /** Bytes; of a folder 0, or the bytes of its files if they were asked for. */
  size: Schema.Int,
  modified_at: TimeText,
  mode: Schema.String,
  /** Where a link points to. */
  target: Schema.optionalKey(Schema.String),
  /** Where the entry lies: files of the server, its base, a volume, or a folder of the host. */
  layer: Schema.Literals(["server", "base", "volume", "mount"]),
  managed: Schema.optionalKey(Schema.Array(Schema.String)),
  writable: Schema.Boolean
}).annotate({ identifier: "FileEntry" })
export type FileEntry = typeof FileEntry.Type

/** One change of files. `overwrite`: what happens if the target exists; default: 409. */
export const FileChange = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("folder"), path: FilePath }),
  Schema.Struct({ kind: Schema.Literal("delete"), path: FilePath }),
  Schema.Struct({ kind: Schema.Literal("mode"), path: FilePath, mode: FileMode }),
  Schema.Struct({
    kind: Schema.Literals(["move", "copy"]),
    from: FilePath,
    path: FilePath,
    overwrite: Schema.optionalKey(Schema.Literals(["fail", "replace"]))
  })
])
export type FileChange = typeof FileChange.Type

export const ArchiveFormat = Schema.Literals(["tar.zst", "tar.gz", "tar", "zip"])
export type ArchiveFormat = typeof ArchiveFormat.Type

/** Returns the format that the name of an archive ends with. */
export const formatOfName = (path: string): ArchiveFormat | undefined =>
  ArchiveFormat.literals.find((format) => path.endsWith(`.${format}`))

/** A file whose name or text matches; `line` counts from 1. */
export const FileMatch = Schema.Struct({
  path: Schema.String,
  line: Schema.optionalKey(Schema.Int),
  excerpt: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "FileMatch" })
export type FileMatch = typeof FileMatch.Type

/** A path at which a server differs from its base. */
export const FileDifference = Schema.Struct({
  path: Schema.String,
  change: Schema.Literals(["added", "changed", "removed"]),
  size: Schema.Int
}).annotate({ identifier: "FileDifference" })
export type FileDifference = typeof FileDifference.Type

/** The `files` of a blueprint: patterns of paths that callers may not read, or not write, and what they see of shared folders. */
export const FileRules = Schema.Struct({
  deny: Schema.optionalKey(Schema.Array(Schema.String)),
  read_only: Schema.optionalKey(Schema.Array(Schema.String)),
  /** Default: `read`. */
  volumes: Schema.optionalKey(Schema.Literals(["read", "write"])),
  /** Default: `hidden`. */
  mounts: Schema.optionalKey(Schema.Literals(["hidden", "read"]))
}).annotate({ identifier: "FileRules" })
export type FileRules = typeof FileRules.Type
