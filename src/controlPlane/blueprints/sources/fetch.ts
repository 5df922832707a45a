/** Fetches the definition files of a repository's commit. */
import { Effect, FileSystem, Path, Result } from "effect"
import { printable } from "../parse/located.ts"
import { MAX_FILE_BYTES, TOO_LARGE } from "../parse/parse.ts"
import { relativePath } from "../parse/paths.ts"
import { type GitContext, GitFailed, git } from "./git.ts"
import type { Source } from "./parseSources.ts"
import { cannot, SyncFailed } from "./placement.ts"

interface TreeFile {
  readonly path: string
  readonly size: number
}

const MAX_FILES = 5_000

/** Bound of all definition files of a source, in bytes. */
const MAX_TOTAL_BYTES = 32 * 1024 * 1024

/** Bound of the listing itself, in bytes: a tree of a few objects can stand for billions of names. */
const MAX_LISTING_BYTES = 16 * 1024 * 1024

const LISTING_TOO_LARGE =
  "the list of its files is larger than 16 MiB; name the folder of the definitions with `path`"

const quoted = (path: string) => `\`${printable(path, 120)}\``

const decode = (bytes: Uint8Array): Result.Result<string, string> =>
  Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => "the name of a file is not UTF-8"
  })

/** Reads `<mode> <type> <oid> <size>\t<path>`; nothing for a harmless entry that is no definition. */
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

export interface FetchOptions {
  readonly workDir: string
  /** Bound of a repository, in bytes. */
  readonly maxBytes: number
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Returns the variable with a token. */
  readonly variable: (name: string) => string | undefined
}

/** The user for a token if the address has none: git hosts accept any, and GitHub asks for this one. */
const STANDARD_USER = "x-access-token"

/** Returns the token of a source as a header, with the texts that no message may contain. */
const login = Effect.fnUntraced(function* (
  { address, token }: Source,
  variable: FetchOptions["variable"]
): Effect.fn.Return<Pick<GitContext, "authorization" | "secrets">, SyncFailed, FileSystem.FileSystem> {
  if (token === undefined) return { authorization: undefined, secrets: [] }
  const fs = yield* FileSystem.FileSystem
  const text =
    "env" in token
      ? (variable(token.env) ?? "")
      : yield* Effect.mapError(fs.readFileString(token.file), cannot("the file of its token cannot be read"))
  const secret = text.trim()
  if (secret === "") {
    const where = "env" in token ? `the variable ${token.env} is not set` : "the file of its token is empty"
    return yield* new SyncFailed({ reason: where })
  }
  if (/[\p{Cc}\p{Cf}]/u.test(secret)) {
    return yield* new SyncFailed({ reason: "its token has more than one line, or control characters" })
  }
  const basic = Buffer.from(`${address.user ?? STANDARD_USER}:${secret}`).toString("base64")
  return { authorization: `Basic ${basic}`, secrets: [basic, secret] }
})

const makeRepository = Effect.fnUntraced(
  function* (workDir: string) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    yield* fs.makeDirectory(workDir, { recursive: true, mode: 0o700 })
    const directory = yield* fs.makeTempDirectoryScoped({ directory: workDir })
    yield* fs.makeDirectory(path.join(directory, "info"))
    // wins over the attributes of the commit: its files are written as they are
    yield* fs.writeFileString(
      path.join(directory, "info/attributes"),
      "* -text -ident -filter -working-tree-encoding\n"
    )
    return directory
  },
  Effect.mapError(cannot("the folder of git cannot be made"))
)

/** Fetches the commit of the source's ref without history; returns its id. */
const fetchCommit = Effect.fnUntraced(function* (source: Source, context: GitContext) {
  yield* git(context, ["init", "--quiet", "--bare", "--template="])
  yield* git(
    context,
    [
      "fetch",
      "--quiet",
      "--depth=1",
      // Files that are too large to be read are not fetched. A server without filters sends them.
      `--filter=blob:limit=${MAX_FILE_BYTES + 1}`,
      "--no-tags",
      "--no-recurse-submodules",
      "--no-auto-maintenance",
      "--",
      context.address.url,
      source.ref ?? "HEAD"
    ],
    { grows: true }
  )
  // Git before 2.45 fetches each omitted file when asked for its size.
  yield* git(context, ["config", "--remove-section", `remote.${context.address.url}`]).pipe(
    Effect.catch((error) => Effect.logDebug(`the filter of a source: ${error.reason}`))
  )
  const commit = yield* git(context, ["rev-parse", "--verify", "FETCH_HEAD^{commit}"]).pipe(
    Effect.mapError(() => new GitFailed({ reason: `${source.ref ?? "HEAD"} is no commit` }))
  )
  return commit.toString("utf8").trim()
})

/** Returns the paths of a commit's definition files in the source's folder. */
const listFiles = Effect.fnUntraced(function* (source: Source, context: GitContext, commit: string) {
  const tree = `${commit}:${source.path}`
  const type = yield* Effect.orElseSucceed(git(context, ["cat-file", "-t", tree]), () => Buffer.of())
  if (type.toString("utf8").trim() !== "tree") {
    const at = `${source.ref ?? "HEAD"} (${commit.slice(0, 12)})`
    return yield* new SyncFailed({ reason: `there is no folder \`${source.path}\` in ${at}` })
  }
  const listing = yield* git(context, ["ls-tree", "-r", "-l", "-z", "--full-tree", tree], {
    maxBytes: MAX_LISTING_BYTES,
    tooMuch: LISTING_TOO_LARGE
  })
  const files = yield* Effect.mapError(
    Effect.fromResult(parseListing(listing)),
    (reason) => new SyncFailed({ reason })
  )
  if (files.length > 0) return files
  const where = source.path === "" ? "in it" : `in its folder \`${source.path}\``
  return yield* new SyncFailed({ reason: `there is no *.yml or *.yaml file ${where}` })
})

/** Fetches a source and writes its definition files into an empty folder; returns the commit and their paths. */
export const fetchFiles = Effect.fn("fetchFiles")(function* (
  source: Source,
  into: string,
  { environment, maxBytes, variable, workDir }: FetchOptions
) {
  const { address, ca_file } = source
  const secret = yield* login(source, variable)
  const directory = yield* makeRepository(workDir)
  const context = { directory, address, ...secret, ca_file, maxBytes, environment }
  const commit = yield* fetchCommit(source, context)
  const files = yield* listFiles(source, context, commit)
  yield* git(context, ["read-tree", `${commit}:${source.path}`])
  yield* git(context, [`--work-tree=${into}`, "checkout-index", "-z", "--stdin"], {
    cwd: into,
    stdin: files.map((file) => `${file}\0`).join("")
  }).pipe(
    Effect.mapError(({ reason }) => new SyncFailed({ reason: `its files cannot be written: ${reason}` }))
  )
  return { commit, files }
}, Effect.scoped)
