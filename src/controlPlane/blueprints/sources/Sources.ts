import { Context, DateTime, Effect, Fiber, FileSystem, Layer, Path, Result } from "effect"
import type { ChildProcessSpawner } from "effect/process/ChildProcessSpawner"
import type { SourceView } from "../../../contract/domain/Blueprint.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import type { Mount } from "../parse/readFolder.ts"
import { type FetchOptions, fetchFiles } from "./fetch.ts"
import { type InvalidSources, readSources, SETTING, type Source, type SourceKind } from "./parseSources.ts"
import { cannot, makePlace, type Place, type State, SyncFailed } from "./placement.ts"

export interface SourceFailure {
  readonly id: string
  /** One line, without secrets and without paths of this host. */
  readonly reason: string
}

/** The new state of one source, or its removal. */
export interface Candidate {
  readonly id: string
  readonly mounts: ReadonlyArray<Mount>
  /** The folder of a source without files in place. */
  readonly newFolder: string | undefined
  /** Puts the candidate in place, in one step; must not be interrupted. */
  readonly place: Effect.Effect<void, SyncFailed>
}

/** The fetched files of all sources of a folder, not yet in place. */
export interface Fetched {
  readonly candidates: ReadonlyArray<Candidate>
  readonly failures: ReadonlyArray<SourceFailure>
}

/** Git repositories that are synced into the definition folders. Default: none. */
export interface DefinitionSources {
  /** Fetches the sources of a folder in at most 20 s at a reload. @error InvalidSources their file is invalid */
  fetch(kind: SourceKind, when: "start" | "reload"): Effect.Effect<Fetched, InvalidSources>
  /** Records why fetched files are not in place. */
  note(failure: SourceFailure): Effect.Effect<void>
  /** Removes unused states, and the remains of an interrupted sync. */
  sweep(kind: SourceKind): Effect.Effect<void>
  /** The state of each source, by id. */
  readonly list: Effect.Effect<ReadonlyArray<SourceView>>
}

const none: DefinitionSources = {
  fetch: () => Effect.succeed({ candidates: [], failures: [] }),
  note: () => Effect.void,
  sweep: () => Effect.void,
  list: Effect.succeed([])
}

/** The definition folders, absolute, and the data folder whose service syncs them. */
export interface SourceFolders {
  readonly dataDir: string
  readonly folders: Readonly<Record<SourceKind, string>>
}

export interface SourcesOptions extends SourceFolders {
  readonly file: string
  /** Environment of this process, for proxies and certificates. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Bound of a fetched repository, in bytes. Default: 1 GiB. */
  readonly maxBytes?: number
  /** Returns the variable with a token. Default: from `environment`. */
  readonly variable?: (name: string) => string | undefined
}

const RELOAD_SECONDS = 20

const PARALLEL_SYNCS = 8

const MAX_BYTES = 1024 * 1024 * 1024

type Platform = FileSystem.FileSystem | Path.Path | ChildProcessSpawner

/** The sources that the stores sync before they read their folders. */
export const Sources: Context.Reference<DefinitionSources> = Context.Reference("muster/blueprints/Sources", {
  defaultValue: () => none
})

/** Returns the places of a data folder's sources, and its folder for temporary repositories, which it empties. */
const placesOf = Effect.fnUntraced(
  function* ({ dataDir, folders }: SourceFolders) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const directory = path.join(dataDir, "sources")
    const workDir = path.join(directory, "work")
    yield* fs.remove(workDir, { recursive: true, force: true })
    yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
    const file = path.join(directory, "owner")
    const known = yield* fs
      .readFileString(file)
      .pipe(Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed("")))
    const owner = /^[0-9a-f-]{36}$/.test(known) ? known : crypto.randomUUID()
    if (owner !== known) yield* fs.writeFileString(file, owner)
    const blueprints = yield* makePlace(folders.blueprints, owner)
    const software = yield* makePlace(folders.software, owner)
    return { workDir, places: { blueprints, software } }
  },
  Effect.mapError(cannot("the folder of sources in the data folder cannot be used"))
)

/** Syncs nothing; warns about files that an earlier start has placed, which stay. */
export const layerUnlisted = (folders: SourceFolders) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { places } = yield* placesOf(folders)
      const names: Array<string> = []
      for (const kind of ["blueprints", "software"] as const) {
        const states = yield* places[kind].statesInUse
        names.push(...states.map(({ destination }) => `${destination} (${kind})`))
      }
      if (names.length === 0) return
      yield* Effect.logWarning(
        `${SETTING} is not set; the definitions of these sources stay in use: ${names.join(", ")}`
      )
    }).pipe(Effect.catch((error) => Effect.logWarning(`sources: ${error.reason}`)))
  )

/**
 * Syncs the sources of a file at once. A store starts once the sources of its folder are synced.
 * @error InvalidSources the file is invalid: names line, column and reason
 * @error SyncFailed the data folder cannot be used
 */
export const layerSources = (
  options: SourcesOptions
): Layer.Layer<never, InvalidSources | SyncFailed, Platform> =>
  Layer.effect(
    Sources,
    Effect.gen(function* () {
      const platform = yield* Effect.context<Platform>()
      const { environment, maxBytes = MAX_BYTES, variable = (name: string) => environment[name] } = options
      const read = Effect.tap(readSources(options.file), (sources) =>
        // Read before any program starts that could inherit it.
        Effect.sync(() => {
          for (const { token } of sources) if (token !== undefined && "env" in token) variable(token.env)
        })
      )
      let listed = yield* read
      const { places, workDir } = yield* placesOf(options)
      const failures = new Map<string, string>()

      const fetch = Effect.fnUntraced(function* (kind: SourceKind, when: "start" | "reload") {
        const began = yield* elapsedMillis
        listed = yield* read
        const place = places[kind]
        const sources = listed.filter((source) => source.kind === kind)
        const used = yield* Effect.result(place.statesInUse)
        const old = Map.groupBy(
          Result.getOrElse(used, () => []),
          ({ id }) => id
        )
        const results = yield* Effect.forEach(
          sources,
          (source) => {
            const seconds = when === "start" ? source.timeout : Math.min(source.timeout, RELOAD_SECONDS)
            return Effect.fromResult(used).pipe(
              Effect.andThen(sync(source, place, { environment, maxBytes, variable, workDir })),
              timeoutFrom(began, seconds),
              Effect.map((state) => arrival(source, state, old.get(source.id) ?? [], place)),
              Effect.result,
              Effect.map((result) => ({ id: source.id, result }))
            )
          },
          { concurrency: PARALLEL_SYNCS }
        )
        for (const { id, result } of results) {
          if (Result.isFailure(result)) failures.set(id, result.failure.reason)
          else failures.delete(id)
        }
        const gone = [...old].filter(([id]) => !sources.some((source) => source.id === id))
        return {
          candidates: [
            ...results.flatMap(({ result }) => (Result.isSuccess(result) ? [result.success] : [])),
            ...gone.map(([id, states]) => departure(id, states, place))
          ],
          failures: results.flatMap(({ id, result }) =>
            Result.isFailure(result) ? [{ id, reason: result.failure.reason }] : []
          )
        } satisfies Fetched
      })

      const list = Effect.gen(function* () {
        const views: Array<SourceView> = []
        for (const kind of ["blueprints", "software"] as const) {
          const states = yield* Effect.orElseSucceed(places[kind].statesInUse, () => [])
          for (const { address, destination, id, path, ref = null } of listed.filter(
            (source) => source.kind === kind
          )) {
            const { commit = null, synced_at = null } = states.find((state) => state.id === id) ?? {}
            const error = failures.get(id) ?? null
            views.push({ id, kind, url: address.url, ref, path, destination, commit, synced_at, error })
          }
        }
        return views.sort((a, b) => (a.id < b.id ? -1 : 1))
      })

      const begin = (kind: SourceKind) =>
        Effect.forkScoped(Effect.provideContext(fetch(kind, "start"), platform))
      const started = { blueprints: yield* begin("blueprints"), software: yield* begin("software") }
      return {
        fetch: (kind, when) =>
          when === "start" ? Fiber.join(started[kind]) : Effect.provideContext(fetch(kind, when), platform),
        note: ({ id, reason }) => Effect.sync(() => failures.set(id, reason)),
        sweep: (kind) =>
          Effect.catch(places[kind].sweep, ({ reason }) => Effect.logWarning(`${kind}: ${reason}`)),
        list
      } satisfies DefinitionSources
    })
  )

const sync = Effect.fn("sync")(function* (source: Source, place: Place, options: FetchOptions) {
  const { destination, id } = source
  yield* place.checkDestination(id, destination)
  const folder = yield* place.makeState(id)
  const { commit, files } = yield* fetchFiles(source, folder, options)
  const state: State = {
    id,
    destination,
    commit,
    synced_at: DateTime.formatIso(yield* DateTime.now),
    folder
  }
  yield* place.finishState(state, files)
  return state
})

/** Fails unless the effect ends within this time from `began`. */
const timeoutFrom =
  (began: number, seconds: number) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(elapsedMillis, (now) =>
      Effect.timeoutOrElse(effect, {
        duration: Math.max(seconds * 1000 - (now - began), 1),
        orElse: () => new SyncFailed({ reason: `not done within ${seconds} s` })
      })
    )

const removal = ({ destination }: State): Mount => ({ at: destination, directory: undefined })

/** Replaces the states of a source by a new one, also at a changed destination. */
const arrival = (
  { id, kind, ref = "HEAD" }: Source,
  state: State,
  old: ReadonlyArray<State>,
  place: Place
) => {
  const { commit, destination, folder } = state
  const moved = old.filter((one) => one.destination !== destination)
  return {
    id,
    mounts: [{ at: destination, directory: folder }, ...moved.map(removal)],
    newFolder: old.length === 0 ? destination : undefined,
    place: Effect.gen(function* () {
      yield* place.link(state)
      yield* Effect.forEach(moved, place.unlink, { discard: true })
      if (old.some((one) => one.commit === commit)) return
      yield* Effect.logInfo(`${kind}: source ${id} is at ${ref} (${commit.slice(0, 12)})`)
    })
  }
}

/** Removes the files of a source that is no longer listed. */
const departure = (id: string, old: ReadonlyArray<State>, place: Place) => ({
  id,
  mounts: old.map(removal),
  newFolder: undefined,
  place: Effect.forEach(old, place.unlink, { discard: true })
})
