import { Effect, FileSystem, Path, Semaphore } from "effect"
import { InvalidRequest } from "../domain/errors.ts"
import type { Definitions } from "./definitions.ts"
import type { AnyFile } from "./files.ts"
import type { Folder } from "./parse.ts"
import { describeProblems, type Problem, renderProblem, sortProblems } from "./problem.ts"
import { readFolder } from "./readFolder.ts"

/** What a folder's files make. */
export interface Reloadable<A> {
  /** The same object until a reload has replaced it. */
  readonly current: Effect.Effect<A>
  readonly reload: Effect.Effect<void, InvalidRequest>
}

/**
 * Keeps what the files of a folder make. At the start invalid files are logged and the valid ones serve; a folder that
 * cannot be read is as an empty one. A reload is all or nothing; reloads run one at a time.
 *
 * @param build    makes the set of the valid files
 * @param warnings lines to log about a set that is about to serve
 */
export const makeReloadable = Effect.fnUntraced(function* <A>(options: {
  readonly folder: Folder
  readonly directory: string
  readonly build: (files: ReadonlyArray<AnyFile>) => Definitions<A>
  readonly warnings: (value: A) => Effect.Effect<ReadonlyArray<string>>
}) {
  const { build, directory, folder, warnings } = options
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const oneAtATime = yield* Semaphore.make(1)

  const load = Effect.gen(function* () {
    const contents = yield* readFolder(folder, directory)
    const files = contents.files.flatMap(({ definition }) => definition ?? [])
    const { problems, value } = build(files)
    return {
      value,
      problems: sortProblems([...contents.files.flatMap((file) => file.problems), ...problems]),
      warnings: [...contents.warnings, ...contents.files.flatMap((file) => file.warnings)]
    }
  }).pipe(Effect.provideService(FileSystem.FileSystem, fs), Effect.provideService(Path.Path, path))

  const warn = (lines: ReadonlyArray<string>) =>
    Effect.forEach(lines, (line) => Effect.logWarning(`${folder}: ${line}`), { discard: true })

  const start = Effect.gen(function* () {
    const loaded = yield* load
    for (const problem of loaded.problems) yield* Effect.logError(`${folder}: ${renderProblem(problem)}`)
    yield* warn([...loaded.warnings, ...(yield* warnings(loaded.value))])
    return loaded.value
  }).pipe(
    Effect.catch(({ reason }) =>
      Effect.as(
        Effect.logWarning(`${folder}: nothing is loaded from ${directory}: ${reason}`),
        build([]).value
      )
    )
  )

  let current = yield* start

  const reload = Effect.gen(function* () {
    const loaded = yield* Effect.mapError(load, ({ reason }) => unreadable(folder, reason))
    if (loaded.problems.length > 0) return yield* invalid(loaded.problems)
    const lines = [...loaded.warnings, ...(yield* warnings(loaded.value))]
    current = loaded.value
    yield* Effect.logInfo(`${folder}: reloaded`)
    yield* warn(lines)
  }).pipe(oneAtATime.withPermits(1))

  return { current: Effect.sync(() => current), reload } satisfies Reloadable<A>
})

const unreadable = (folder: Folder, reason: string) =>
  new InvalidRequest({
    detail: `the ${folder} folder cannot be read: ${reason}`,
    hint: "Nothing was changed. Check the folder, then reload."
  })

const invalid = (problems: ReadonlyArray<Problem>) =>
  new InvalidRequest({
    detail: describeProblems(problems),
    hint: "Nothing was changed. Correct the files, then reload."
  })
