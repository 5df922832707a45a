/** Sets of definitions from the files of a folder. */
import { Effect, Result } from "effect"
import type { Blueprint } from "../../contract/domain/Blueprint.ts"
import { MOST_SCHEDULES } from "../../contract/domain/Schedule.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { compose, flattenMixins } from "./compose.ts"
import type { AnyFile, BlueprintFile, MixinFile } from "./parse/files.ts"
import type { Folder } from "./parse/parse.ts"
import { type Problem, sortProblems } from "./parse/problem.ts"
import { type Mount, readFolder } from "./parse/readFolder.ts"

/** Definitions sorted by id, and the problems of the files that are not among them. */
export interface Definitions<A> {
  readonly value: A
  readonly problems: ReadonlyArray<Problem>
}

export type SoftwareSet = ReadonlyMap<string, Software>

export interface BlueprintSet {
  readonly blueprints: ReadonlyMap<string, Blueprint>
  readonly mixins: ReadonlyMap<string, MixinFile>
  readonly files: ReadonlyMap<string, string>
}

/** Returns the files by id, sorted; a second file with the same id is a problem that names both. */
const unique = <F extends AnyFile>(
  files: ReadonlyArray<F>,
  problems: Array<Problem>
): ReadonlyMap<string, F> => {
  const byId = new Map<string, F>()
  for (const file of files) {
    const first = byId.get(file.id)
    if (first === undefined) byId.set(file.id, file)
    else {
      const reason = `the ${file.kind} id \`${file.id}\` is taken by ${first.file}:${first.at.line}`
      problems.push({ file: file.file, ...file.at, reason })
    }
  }
  return sortedById(byId)
}

const sortedById = <A>(byId: ReadonlyMap<string, A>): ReadonlyMap<string, A> =>
  new Map([...byId].sort(([a], [b]) => (a < b ? -1 : 1)))

export const softwareSet = (files: ReadonlyArray<AnyFile>): Definitions<SoftwareSet> => {
  const problems: Array<Problem> = []
  const byId = unique(
    files.filter((file) => file.kind === "software"),
    problems
  )
  return { value: new Map([...byId].map(([id, file]) => [id, file.software])), problems }
}

export const blueprintSet = (files: ReadonlyArray<AnyFile>): Definitions<BlueprintSet> => {
  const problems: Array<Problem> = []
  const mixinFiles = unique<MixinFile>(
    files.filter((file) => file.kind === "mixin"),
    problems
  )
  const blueprintFiles = unique<BlueprintFile>(
    files.filter((file) => file.kind === "blueprint"),
    problems
  )
  const flat = flattenMixins(mixinFiles)
  const mixins = new Map<string, MixinFile>()
  for (const [id, mixin] of mixinFiles) {
    const result = flat.get(id)
    if (result !== undefined && Result.isFailure(result)) problems.push(result.failure.problem)
    else mixins.set(id, mixin)
  }
  const blueprints = new Map<string, Blueprint>()
  let schedules = 0
  for (const [id, file] of blueprintFiles) {
    const composed = compose(file, flat)
    if (Result.isFailure(composed)) {
      problems.push(...composed.failure)
      continue
    }
    schedules += composed.success.schedules?.length ?? 0
    if (schedules > MOST_SCHEDULES) {
      const reason = `the blueprints up to this one have more than ${MOST_SCHEDULES} schedules`
      problems.push({ file: file.file, ...file.at, reason })
    } else blueprints.set(id, composed.success)
  }
  const fileOf = new Map([...blueprintFiles].map(([id, { file }]) => [id, file]))
  return { value: { blueprints, mixins, files: fileOf }, problems }
}

export interface Loaded<A> {
  readonly value: A
  readonly problems: ReadonlyArray<Problem>
  /** Files that were read, valid or not. */
  readonly files: number
  /** One line each; a file is named first. */
  readonly warnings: ReadonlyArray<string>
}

/** Reads a folder with its `mounts` into a set. @error FolderUnreadable the folder itself cannot be read */
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
