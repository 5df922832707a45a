import { Effect } from "effect"
import type { Definitions } from "./definitions.ts"
import type { AnyFile } from "./parse/files.ts"
import type { Folder } from "./parse/parse.ts"
import { type Problem, sortProblems } from "./parse/problem.ts"
import { type Mount, readFolder } from "./parse/readFolder.ts"

/** The result of reading a folder. */
export interface Loaded<A> {
  readonly value: A
  /** Of all files, by file and position. */
  readonly problems: ReadonlyArray<Problem>
  /** Files that were read, valid or not. */
  readonly files: number
  /** One line each; a file is named first. */
  readonly warnings: ReadonlyArray<string>
}

/**
 * Reads a folder of definitions, and makes a set from the valid files.
 *
 * @param build  makes the set
 * @param mounts folders to read instead of paths below `directory`
 * @error FolderUnreadable the folder itself cannot be read
 */
export const loadFolder = Effect.fnUntraced(function* <A>(
  folder: Folder,
  directory: string,
  build: (files: ReadonlyArray<AnyFile>) => Definitions<A>,
  mounts: ReadonlyArray<Mount> = []
) {
  const contents = yield* readFolder(folder, directory, mounts)
  const { problems, value } = build(contents.files.flatMap(({ definition }) => definition ?? []))
  return {
    value,
    files: contents.files.length,
    problems: sortProblems([...contents.files.flatMap((file) => file.problems), ...problems]),
    warnings: [...contents.warnings, ...contents.files.flatMap((file) => file.warnings)]
  } satisfies Loaded<A>
})
