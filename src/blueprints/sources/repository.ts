/** Fetches a folder of a repository's commit as files. */
import { Effect, FileSystem, Path, Result } from "effect"
import { MAX_FILE_BYTES } from "../parse/parse.ts"
import { folderBytes, type GitContext, GitFailed, git } from "./git.ts"
import { LISTING_TOO_LARGE, MAX_LISTING_BYTES, MAX_TOTAL_BYTES, parseBatch, parseListing } from "./listing.ts"
import { cannot, SyncFailed } from "./reasons.ts"
import type { Source } from "./Source.ts"

const FETCHED = "refs/muster/fetched"

/** A cache with this many packs is replaced, because it only grows. */
const MAX_PACKS = 16

/**
 * Runs `use` with a private bare repository; it starts from the cache of earlier syncs, if any. The repository becomes
 * the cache only on success: remains of a failed or killed git are never used again.
 *
 * @param cache    the folder of this source's cache
 * @param maxBytes bound of the cache; a cache of more than half of it is replaced
 */
export const withCache = <A, E, R>(
  cache: string,
  maxBytes: number,
  use: (directory: string, fresh: boolean) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const kept = path.join(cache, "repository.git")
    const failed = Effect.mapError(cannot("the cache cannot be made"))
    // Remains of another process.
    const leftovers = yield* fs.readDirectory(cache).pipe(
      Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed([])),
      failed
    )
    yield* Effect.forEach(
      leftovers.filter((name) => name !== "repository.git"),
      (name) => Effect.ignore(fs.remove(path.join(cache, name), { recursive: true, force: true })),
      { discard: true }
    )
    yield* failed(fs.makeDirectory(cache, { recursive: true, mode: 0o700 }))
    const work = yield* failed(
      Effect.acquireRelease(fs.makeTempDirectory({ directory: cache, prefix: "work-" }), (folder) =>
        Effect.ignore(fs.remove(folder, { recursive: true, force: true }))
      )
    )
    const directory = path.join(work, "repository.git")
    const packs = yield* Effect.orElseSucceed(fs.readDirectory(path.join(kept, "objects/pack")), () => [])
    const fresh =
      packs.length === 0 || packs.length > 2 * MAX_PACKS || (yield* folderBytes(kept)) > maxBytes / 2
    if (fresh) {
      yield* failed(fs.remove(kept, { recursive: true, force: true }))
      yield* failed(fs.makeDirectory(directory))
    } else yield* failed(fs.rename(kept, directory))
    const result = yield* use(directory, fresh)
    yield* failed(fs.rename(directory, kept))
    return result
  }).pipe(Effect.scoped)

/** Removes the caches of sources that are no longer listed. */
export const dropCaches = Effect.fnUntraced(
  function* (directory: string, listed: ReadonlyArray<string>) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const caches = yield* fs
      .readDirectory(directory)
      .pipe(Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed<Array<string>>([])))
    yield* Effect.forEach(
      caches.filter((id) => !listed.includes(id)),
      (id) => fs.remove(path.join(directory, id), { recursive: true, force: true }),
      { discard: true }
    )
  },
  Effect.mapError(cannot("caches cannot be removed"))
)

/** Fetches the commit of the source's ref without history; returns its id. */
export const fetchCommit = Effect.fnUntraced(function* (source: Source, context: GitContext, fresh: boolean) {
  if (fresh) yield* git(context, ["init", "--quiet", "--bare", "--template="])
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
      "--no-write-fetch-head",
      "--no-auto-maintenance",
      "--force",
      "--",
      context.address.url,
      `+${source.ref ?? "HEAD"}:${FETCHED}`
    ],
    { grows: true }
  )
  // Git before 2.45 fetches each omitted file when asked for its size.
  yield* git(context, ["config", "--remove-section", `remote.${context.address.url}`]).pipe(
    Effect.catch((error) => Effect.logDebug(`the filter of a source: ${error.reason}`))
  )
  const commit = yield* git(context, ["rev-parse", "--verify", `${FETCHED}^{commit}`]).pipe(
    Effect.mapError(() => new GitFailed({ reason: `${source.ref ?? "HEAD"} is no commit` }))
  )
  return commit.toString("utf8").trim()
})

/** Returns the definition files of a commit in the source's folder, with their contents. */
export const readCommit = Effect.fnUntraced(function* (source: Source, context: GitContext, commit: string) {
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
  const files = yield* orRefuse(parseListing(listing))
  const output = yield* git(context, ["cat-file", "--batch"], {
    stdin: files.map(({ oid }) => `${oid}\n`).join(""),
    maxBytes: MAX_TOTAL_BYTES + 128 * (files.length + 1)
  })
  const contents = yield* orRefuse(parseBatch(files, output))
  return files.map((file, index) => ({ ...file, bytes: contents[index] ?? Buffer.of() }))
})

const orRefuse = <A>(result: Result.Result<A, string>) =>
  Effect.fromResult(Result.mapError(result, (reason) => new SyncFailed({ reason })))
