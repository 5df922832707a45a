import { type ByteSize, Data, Effect, FileSystem, Option, Path, type PlatformError } from "effect"
import { printable } from "./located.ts"
import { type Folder, MAX_FILE_BYTES, type Parsed, parseFile, refused, TOO_LARGE } from "./parse.ts"

/** The folder itself cannot be read; `reason` names no path. */
export class FolderUnreadable extends Data.TaggedError("FolderUnreadable")<{ readonly reason: string }> {}

/** A folder that replaces the content of a path below the definitions folder: a view of a later state. */
export interface Mount {
  /** Path relative to the folder. */
  readonly at: string
  /** If unset, the path is empty. */
  readonly directory: string | undefined
}

/** The files of a folder, sorted by path, and the ones left out. */
export interface FolderContents {
  readonly files: ReadonlyArray<Parsed>
  readonly warnings: ReadonlyArray<string>
}

const PARALLEL_READS = 16

/** Attempts to read a folder that changes meanwhile. */
const ATTEMPTS = 3

const reasonOf = (error: PlatformError.PlatformError): string =>
  error.reason._tag === "PermissionDenied" ? "permission denied" : error.reason._tag

/**
 * Reads every `*.yml` and `*.yaml` at any depth, except names that begin with a dot. A symbolic link counts as its
 * target, once, and only inside the folder. If a file disappears meanwhile, the folder is read again, up to three
 * times.
 * @param mounts replace paths below `directory`
 */
export const readFolder = Effect.fn("readFolder")(function* (
  folder: Folder,
  directory: string,
  mounts: ReadonlyArray<Mount> = []
) {
  for (let attempt = 1; ; attempt++) {
    const { gone, ...contents } = yield* readOnce(folder, directory, mounts)
    if (!gone || attempt === ATTEMPTS) return contents satisfies FolderContents
  }
})

const readOnce = Effect.fnUntraced(function* (
  folder: Folder,
  directory: string,
  mounts: ReadonlyArray<Mount>
) {
  const fs = yield* FileSystem.FileSystem
  const walked = yield* walkAll(directory, mounts)
  const problems = [...walked.problems]
  let gone = walked.gone
  const files = yield* Effect.forEach(
    walked.found,
    ({ file, real, size }) => {
      if (size > BigInt(MAX_FILE_BYTES)) return Effect.succeed([refusedFile(file, TOO_LARGE)])
      return fs.readFile(real).pipe(
        Effect.map((bytes) => [parseFile(folder, file, bytes)]),
        Effect.catch((error) => {
          if (error.reason._tag === "NotFound") gone = true
          else problems.push(unreadable(file, error))
          return Effect.succeed([])
        })
      )
    },
    { concurrency: PARALLEL_READS }
  )
  return { files: [...files.flat(), ...problems], warnings: walked.warnings, gone }
})

const refusedFile = (file: string, reason: string): Parsed => refused({ file, line: 1, column: 1, reason })

const unreadable = (file: string, error: PlatformError.PlatformError): Parsed =>
  refusedFile(file, `cannot be read: ${reasonOf(error)}`)

const walkAll = Effect.fnUntraced(function* (directory: string, mounts: ReadonlyArray<Mount>) {
  const walks = [yield* walk(directory, "", new Set(mounts.map(({ at }) => at)))]
  for (const mount of mounts) {
    if (mount.directory !== undefined) walks.push(yield* walk(mount.directory, mount.at, new Set()))
  }
  return {
    found: walks.flatMap(({ found }) => found).sort((a, b) => (a.file < b.file ? -1 : 1)),
    problems: walks.flatMap(({ problems }) => problems),
    warnings: walks.flatMap(({ warnings }) => warnings),
    gone: walks.some(({ gone }) => gone)
  }
})

/** Finds the definition files below a folder, whose path is `prefix`, except the paths `skip`. */
const walk = Effect.fnUntraced(function* (directory: string, prefix: string, skip: ReadonlySet<string>) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const found: Array<{ readonly file: string; readonly real: string; readonly size: ByteSize.ByteSize }> = []
  const warnings: Array<string> = []
  const problems: Array<Parsed> = []
  const seen = new Set<string>()
  let gone = false

  const root = yield* Effect.mapError(fs.realPath(directory), notOpened)
  seen.add(root)

  const leaveOut = (file: string, why: string) => {
    warnings.push(`${printable(file)}: ${why}; left out`)
  }

  const look = Effect.fnUntraced(function* (parent: string, file: string, entry: FileSystem.DirectoryEntry) {
    const plain = entry.type === "File" || entry.type === "Directory"
    const at = path.join(parent, entry.name)
    const real = plain ? at : yield* fs.realPath(at)
    if (!real.startsWith(root + path.sep) && real !== root) leaveOut(file, "the link leads out of the folder")
    else if (!seen.has(real)) {
      seen.add(real)
      const { size, type } = yield* fs.stat(real)
      if (type === "Directory") return real
      if (/\.ya?ml$/.test(file)) {
        if (type === "File") found.push({ file, real, size })
        else leaveOut(file, "it is no regular file")
      }
    }
    return undefined
  })

  const enter = (folder: string, real: string) =>
    Effect.map(fs.readDirectoryEntries(real), (entries) => ({
      folder,
      real,
      entries: entries.filter(({ name }) => !name.startsWith(".")).sort((a, b) => (a.name < b.name ? -1 : 1))
    }))

  const onFailure = Effect.fnUntraced(function* (
    at: string,
    file: string,
    error: PlatformError.PlatformError
  ) {
    if (error.reason._tag !== "NotFound") problems.push(unreadable(file, error))
    else if (Option.isSome(yield* Effect.option(fs.readLink(at)))) leaveOut(file, "the link leads nowhere")
    else gone = true
  })

  const pending = [yield* Effect.mapError(enter(prefix, root), notOpened)]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const entry of next.entries) {
      const file = next.folder === "" ? entry.name : `${next.folder}/${entry.name}`
      if (skip.has(file)) continue
      const inner = look(next.real, file, entry).pipe(
        Effect.flatMap((real) => (real === undefined ? Effect.undefined : enter(file, real))),
        Effect.catch((error) =>
          Effect.as(onFailure(path.join(next.real, entry.name), file, error), undefined)
        )
      )
      const entered = yield* inner
      if (entered !== undefined) pending.push(entered)
    }
  }
  return { found, problems, warnings, gone }
})

const notOpened = (error: PlatformError.PlatformError): FolderUnreadable =>
  new FolderUnreadable({
    reason:
      error.reason._tag === "NotFound" ? "it does not exist" : `it is no readable folder (${reasonOf(error)})`
  })
