import { Effect, FileSystem, Path } from "effect"
import type { TreeFile } from "./listing.ts"
import { cannot } from "./reasons.ts"

/** A file of a commit with its content. */
export type FileContents = TreeFile & { readonly bytes: Uint8Array }

const PARALLEL_FILES = 16

/** Writes the files below an empty folder, durably. */
export const writeTree = Effect.fnUntraced(
  function* (directory: string, files: ReadonlyArray<FileContents>) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const parents = new Set(files.map((file) => path.dirname(path.join(directory, file.path))))
    const write = Effect.fnUntraced(function* (at: string, bytes: Uint8Array) {
      const file = yield* fs.open(at, { flag: "wx", mode: 0o644 })
      yield* file.writeAll(bytes)
      yield* file.sync
    }, Effect.scoped)
    yield* Effect.forEach(parents, (parent) => fs.makeDirectory(parent, { recursive: true }), {
      discard: true
    })
    yield* Effect.forEach(files, (file) => write(path.join(directory, file.path), file.bytes), {
      concurrency: PARALLEL_FILES,
      discard: true
    })
  },
  Effect.mapError(cannot("its files cannot be written"))
)

/** Whether a folder has exactly these files, unchanged. A file that cannot be read counts as changed. */
export const holdsOnly = Effect.fnUntraced(
  function* (directory: string, files: ReadonlyArray<FileContents>) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const folders = new Set(files.flatMap((file) => parentsOf(file.path)))
    const names = yield* fs.readDirectory(directory, { recursive: true })
    if (names.length !== files.length + folders.size) return false
    const same = yield* Effect.forEach(
      files,
      (file) =>
        Effect.map(
          fs.readFile(path.join(directory, file.path)),
          (bytes) => Buffer.compare(bytes, file.bytes) === 0
        ),
      { concurrency: PARALLEL_FILES }
    )
    return same.every((it) => it)
  },
  Effect.orElseSucceed(() => false)
)

/** Returns `a` and `a/b` for `a/b/c.yml`. */
const parentsOf = (file: string): ReadonlyArray<string> => {
  const parts = file.split("/").slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"))
}
