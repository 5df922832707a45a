import { Effect, type FileSystem, type Path, Semaphore } from "effect"
import { InvalidRequest, SourceFailed } from "../../contract/domain/errors.ts"
import { type Definitions, type Loaded, loadFolder } from "./definitions.ts"
import type { AnyFile } from "./parse/files.ts"
import { describeProblems, type Problem, renderProblem } from "./parse/located.ts"
import type { Folder } from "./parse/parse.ts"
import type { FolderUnreadable, Mount } from "./parse/readFolder.ts"
import type { InvalidSources } from "./sources/parseSources.ts"
import { type Candidate, type DefinitionSources, type SourceFailure, Sources } from "./sources/Sources.ts"

/** The candidates to put in place, and the rest with the reasons. */
export interface Chosen {
  readonly taken: ReadonlyArray<Candidate>
  readonly refused: ReadonlyArray<{ readonly id: string; readonly problems: ReadonlyArray<Problem> }>
}

const below = (folder: string, { file }: Problem): boolean => file.startsWith(`${folder}/`)

/**
 * Chooses the candidates of a start, so that valid files stay valid: all if they cause no new problem together, else
 * each that causes none. A source without files in place may have invalid files: its valid ones are served.
 * @param problemsWith returns the problems of the folder with these candidates in place
 */
export const choose = Effect.fnUntraced(function* <E, R>(
  candidates: ReadonlyArray<Candidate>,
  problemsWith: (mounts: ReadonlyArray<Mount>) => Effect.Effect<ReadonlyArray<Problem>, E, R>
): Effect.fn.Return<Chosen, E, R> {
  const problemsOf = (some: ReadonlyArray<Candidate>) => problemsWith(some.flatMap(({ mounts }) => mounts))
  const addedTo = (known: ReadonlyArray<Problem>, now: ReadonlyArray<Problem>) => {
    const seen = new Set(known.map(renderProblem))
    return now.filter((problem) => !seen.has(renderProblem(problem)))
  }
  const all = yield* problemsOf(candidates)
  let known = all.length === 0 ? [] : yield* problemsOf([])
  if (addedTo(known, all).length === 0) return { taken: candidates, refused: [] }
  const taken: Array<Candidate> = []
  const refused: Array<Chosen["refused"][number]> = []
  for (const candidate of candidates) {
    const now = yield* problemsOf([...taken, candidate])
    const { id, newFolder } = candidate
    const problems = addedTo(known, now).filter(
      (problem) => newFolder === undefined || !below(newFolder, problem)
    )
    if (problems.length > 0) refused.push({ id, problems })
    else {
      taken.push(candidate)
      known = now
    }
  }
  return { taken, refused }
})

export interface Reloadable<A> {
  /** The same object until a reload. */
  readonly current: Effect.Effect<A>
  /** Whether nothing was left out at the start, or a reload has been done since, and no source has failed. */
  readonly isWhole: Effect.Effect<boolean>
  /** As `BlueprintStore.warnings`. */
  readonly warnings: Effect.Effect<ReadonlyArray<string>>
  readonly reload: Effect.Effect<void, InvalidRequest | SourceFailed>
}

type Serving<A> = Pick<Loaded<A>, "value" | "warnings"> & {
  /** Why some definitions are missing; each line has been logged as an error. */
  readonly missing: ReadonlyArray<string>
}

/** Logs warnings about a folder. */
const warn = (folder: Folder, lines: ReadonlyArray<string>) =>
  Effect.forEach(lines, (line) => Effect.logWarning(`${folder}: ${line}`), { discard: true })

/** Puts candidates in place; returns those that failed. */
const placeAll = Effect.fnUntraced(function* (
  sources: DefinitionSources,
  candidates: ReadonlyArray<Candidate>
) {
  const failures: Array<SourceFailure> = []
  for (const { id, place } of candidates) {
    yield* Effect.catch(place, ({ reason }) => {
      failures.push({ id, reason })
      return sources.note({ id, reason })
    })
  }
  return failures
})

/** Syncs the sources of a folder before its first load. Returns why none is synced, if so. */
const syncFirst = <R>(
  folder: Folder,
  sources: DefinitionSources,
  problemsWith: (mounts: ReadonlyArray<Mount>) => Effect.Effect<ReadonlyArray<Problem>, FolderUnreadable, R>
) => {
  const notSynced = (why: string) => {
    const line = `no source is synced: ${why}`
    return Effect.as(Effect.logError(`${folder}: ${line}`), [line])
  }
  return Effect.gen(function* () {
    const { candidates, failures } = yield* sources.fetch(folder, "start")
    yield* warn(folder, failures.map(staying))
    if (candidates.length === 0) return []
    const { refused, taken } = yield* choose(candidates, problemsWith)
    for (const { id, problems } of refused) {
      const failure = { id, reason: notTaken(describeProblems(problems)) }
      yield* sources.note(failure)
      yield* warn(folder, [staying(failure)])
    }
    yield* warn(folder, (yield* placeAll(sources, taken)).map(staying))
    return []
  }).pipe(
    Effect.catchTag("InvalidSources", ({ detail }) => notSynced(detail)),
    Effect.catchTag("FolderUnreadable", ({ reason }) => notSynced(`the folder cannot be read: ${reason}`)),
    Effect.ensuring(sources.sweep(folder))
  )
}

/**
 * Holds the definitions of a folder, after a sync of its {@link Sources}. At the start, invalid files are logged and
 * the valid ones served; a source that fails or has invalid files keeps its earlier ones. A reload is all or nothing,
 * except for sources that cannot be fetched.
 */
export const makeReloadable = Effect.fnUntraced(function* <A>(options: {
  readonly folder: Folder
  readonly directory: string
  readonly build: (files: ReadonlyArray<AnyFile>) => Definitions<A>
  readonly warnings: (value: A) => Effect.Effect<ReadonlyArray<string>>
}) {
  const { build, directory, folder } = options
  const platform = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const sources = yield* Sources
  const oneAtATime = yield* Semaphore.make(1)

  const load = (mounts: ReadonlyArray<Mount> = []) =>
    Effect.provideContext(loadFolder(folder, directory, build, mounts), platform)

  const warningsOf = (loaded: Pick<Loaded<A>, "value" | "warnings">) =>
    Effect.map(options.warnings(loaded.value), (lines) => [...loaded.warnings, ...lines])

  const failing = Effect.map(sources.list, (list) =>
    list.flatMap(({ error, id, kind }) =>
      kind === folder && error !== null ? [staying({ id, reason: error })] : []
    )
  )

  const unsynced = yield* syncFirst(folder, sources, (mounts) =>
    Effect.map(load(mounts), ({ problems }) => problems)
  )
  const start = Effect.gen(function* () {
    const loaded = yield* load()
    for (const problem of loaded.problems) yield* Effect.logError(`${folder}: ${renderProblem(problem)}`)
    yield* warn(folder, yield* warningsOf(loaded))
    const leftOut = loaded.problems.length === 0 ? [] : describeProblems(loaded.problems).split("\n")
    const missing = [...unsynced, ...leftOut.map((line) => `${line}; left out`)]
    return { ...loaded, missing } satisfies Serving<A>
  }).pipe(
    Effect.catch(({ reason }) =>
      Effect.as(Effect.logWarning(`${folder}: nothing is loaded from ${directory}: ${reason}`), {
        value: build([]).value,
        warnings: [],
        missing: [...unsynced, `nothing is loaded: the folder cannot be read: ${reason}`]
      })
    )
  )

  let current: Serving<A> = yield* start
  let refused: ReadonlyArray<string> = []

  /** Fails if the folder, with the mounts, is not a valid set. */
  const loadValid = Effect.fnUntraced(function* (
    mounts: ReadonlyArray<Mount>,
    failures: ReadonlyArray<SourceFailure>
  ) {
    const loaded = yield* Effect.mapError(load(mounts), ({ reason }) => unreadable(folder, reason))
    return loaded.problems.length > 0 ? yield* invalid(loaded.problems, failures) : loaded
  })

  const reload: Reloadable<A>["reload"] = Effect.gen(function* () {
    const { candidates, failures } = yield* Effect.mapError(sources.fetch(folder, "reload"), unlisted)
    // The check comes before the change: the next start can serve everything on the disk.
    const loaded = yield* loadValid(
      candidates.flatMap(({ mounts }) => mounts),
      failures
    ).pipe(
      Effect.tapError(({ detail }) =>
        Effect.forEach(candidates, ({ id }) => sources.note({ id, reason: notTaken(detail) }), {
          discard: true
        })
      )
    )
    const all = yield* Effect.uninterruptible(
      Effect.gen(function* () {
        const unplaced = yield* placeAll(sources, candidates)
        const unsynced = [...failures, ...unplaced]
        current = { ...(unplaced.length === 0 ? loaded : yield* loadValid([], unsynced)), missing: [] }
        return unsynced
      })
    )
    refused = []
    yield* Effect.logInfo(`${folder}: reloaded`)
    yield* warn(folder, yield* warningsOf(current))
    if (all.length > 0) return yield* sourceFailed(folder, all)
  }).pipe(
    Effect.tapErrorTag("InvalidRequest", ({ detail }) =>
      Effect.sync(() => {
        refused = detail.split("\n").map((line) => `the last reload was refused: ${line}`)
      })
    ),
    Effect.ensuring(sources.sweep(folder)),
    oneAtATime.withPermits(1)
  )

  return {
    current: Effect.sync(() => current.value),
    isWhole: Effect.map(failing, (lines) => lines.length === 0 && current.missing.length === 0),
    warnings: Effect.gen(function* () {
      return [...refused, ...current.missing, ...(yield* warningsOf(current)), ...(yield* failing)]
    }),
    reload
  } satisfies Reloadable<A>
})

const failureLine = ({ id, reason }: SourceFailure): string => `source ${id}: ${reason}`

const staying = (failure: SourceFailure): string =>
  `${failureLine(failure)}; what it has put in place before stays; correct the cause, then reload`

const notTaken = (detail: string): string =>
  `its new files are not accepted: ${detail.split("\n").join("; ")}`

const unreadable = (folder: Folder, reason: string) =>
  new InvalidRequest({
    detail: `the ${folder} folder cannot be read: ${reason}`,
    hint: "Nothing was changed. Check the folder, then reload."
  })

const invalid = (problems: ReadonlyArray<Problem>, failures: ReadonlyArray<SourceFailure>) =>
  new InvalidRequest({
    detail: [describeProblems(problems), ...failures.map(failureLine)].join("\n"),
    hint: "Nothing was changed. Correct the files, then reload."
  })

const unlisted = ({ detail }: InvalidSources) =>
  new InvalidRequest({ detail, hint: "Nothing was changed. Correct the file of the sources, then reload." })

const sourceFailed = (folder: Folder, failures: ReadonlyArray<SourceFailure>) =>
  new SourceFailed({
    detail: [...failures.map(failureLine), `Everything else in the ${folder} folder was reloaded.`].join("\n")
  })
