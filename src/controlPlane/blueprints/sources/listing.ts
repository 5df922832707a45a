/** Reads the output of `git ls-tree` and chooses the definition files. No I/O. */
import { Result } from "effect"
import { MAX_FILE_BYTES, TOO_LARGE } from "../parse/parse.ts"
import { relativePath } from "../parse/paths.ts"
import { printable } from "../parse/problem.ts"

interface TreeFile {
  readonly path: string
  /** Bytes. */
  readonly size: number
}

const MAX_FILES = 5_000

/** Bound of all definition files of a source, in bytes. */
const MAX_TOTAL_BYTES = 32 * 1024 * 1024

/** Bound of the listing itself, in bytes: a tree of a few objects can stand for billions of names. */
export const MAX_LISTING_BYTES = 16 * 1024 * 1024

export const LISTING_TOO_LARGE =
  "the list of its files is larger than 16 MiB; name the folder of the definitions with `path`"

const quoted = (path: string) => `\`${printable(path, 120)}\``

const decode = (bytes: Uint8Array): Result.Result<string, string> =>
  Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => "the name of a file is not UTF-8"
  })

/** Reads one entry: `<mode> <type> <oid> <size>\t<path>`; undefined: a harmless entry that is not a definition. */
const entryOf = (entry: string): Result.Result<TreeFile | undefined, string> => {
  const match = /^(\d{6}) \w+ [0-9a-f]+ +(\d+|-|BAD)\t([\s\S]+)$/.exec(entry)
  const [, mode = "", size = "", path = ""] = match ?? []
  if (match === null) return Result.fail(`git lists ${quoted(entry)}, which is no entry of a tree`)
  const parts = path.split("/")
  if (parts.some((part) => part === "" || part === "." || part === "..")) {
    return Result.fail(`${quoted(path)} leads out of its folder`)
  }
  // As in the folders: names that begin with a dot are skipped.
  if (parts.some((part) => part.startsWith("."))) return Result.succeed(undefined)
  if (mode === "120000") return Result.fail(`${quoted(path)} is a symbolic link; a source holds files only`)
  if (mode === "160000") return Result.fail(`${quoted(path)} is a submodule; a source holds files only`)
  if (!/\.ya?ml$/.test(path)) return Result.succeed(undefined)
  if (!mode.startsWith("100")) return Result.fail(`${quoted(path)} is no regular file`)
  // `BAD`: the file was too large to be fetched.
  const bytes = Number(size)
  if (!(bytes <= MAX_FILE_BYTES)) return Result.fail(`${quoted(path)}: ${TOO_LARGE}`)
  return Result.map(relativePath(path), () => ({ path, size: bytes }))
}

/** Returns the paths of the definition files of a listing (`git ls-tree -r -l -z`), or the first reason to refuse it. */
export const parseListing = (bytes: Uint8Array): Result.Result<ReadonlyArray<string>, string> => {
  const text = decode(bytes)
  if (Result.isFailure(text)) return Result.fail(text.failure)
  const files = new Set<string>()
  let total = 0
  for (const line of text.success.split("\0")) {
    if (line === "") continue
    const entry = entryOf(line)
    if (Result.isFailure(entry)) return Result.fail(entry.failure)
    const file = entry.success
    if (file === undefined) continue
    if (files.has(file.path)) return Result.fail(`${quoted(file.path)} is there twice`)
    files.add(file.path)
    total += file.size
    if (files.size > MAX_FILES) return Result.fail(`more than ${MAX_FILES} definition files`)
    if (total > MAX_TOTAL_BYTES) return Result.fail("its definition files are larger than 32 MiB together")
  }
  return Result.succeed([...files])
}
