/** Files of servers, as callers see them (spec 10). */
import { Schema } from "effect"
import { pathParts } from "./filePlan.ts"
import { TimeText } from "./nowText.ts"

const MAX_PATH_BYTES = 4096

const encoder = new TextEncoder()

/** Returns why a text is no absolute path in an instance, in words that follow the path; undefined: it is one. */
export const whyNoPath = (path: string): string | undefined => {
  if (!path.startsWith("/")) return "does not begin with /"
  if (path.length * 3 > MAX_PATH_BYTES && encoder.encode(path).length > MAX_PATH_BYTES)
    return `is longer than ${MAX_PATH_BYTES} bytes`
  if (path === "/") return undefined
  const names = path.slice(1).split("/")
  if (names.some((name) => name === "" || name === ".")) return "has an empty name or `.`"
  const parts = pathParts(path.slice(1))
  return parts._tag === "Failure" ? parts.failure : undefined
}

/** An absolute path in an instance, such as `/plugins/x.jar`. Bytes that are not UTF-8 are `%XX` (spec 10.3). */
export const FilePath = Schema.String.check(
  Schema.makeFilter((path: string) => {
    const why = whyNoPath(path)
    return why === undefined ? undefined : `expected an absolute path such as /plugins/x.jar: it ${why}`
  })
).annotate({ identifier: "FilePath" })

/** Whether `path` is `folder` or below it. */
export const isWithin = (folder: string, path: string): boolean =>
  folder === "/" || path === folder || path.startsWith(`${folder}/`)

export const FileType = Schema.Literals(["file", "folder", "link", "other"])
export type FileType = typeof FileType.Type

/** Permission bits, in octal digits. */
export const FileMode = Schema.String.check(
  Schema.isPattern(/^0?[0-7]{3}$/, { expected: "permissions such as 0644" })
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
