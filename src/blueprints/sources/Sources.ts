import { Context, Effect, Fiber, type FileSystem, Layer, Path, Result } from "effect"
import type { ChildProcessSpawner } from "effect/process/ChildProcessSpawner"
import { elapsedMillis } from "../../domain/elapsed.ts"
import type { SourceView } from "../../domain/SourceView.ts"
import { arrival, type Candidate, departure, stateInUse } from "./candidates.ts"
import { openRecord, readRecord } from "./PlacedRecord.ts"
import { linkedState, type Place, sweep } from "./placement.ts"
import { type InvalidSources, readSources, SETTING } from "./readSources.ts"
import { SyncFailed } from "./reasons.ts"
import { dropCaches } from "./repository.ts"
import type { Source, SourceKind } from "./Source.ts"
import { sync } from "./sync.ts"

/** The failure of one source. */
export interface SourceFailure {
  readonly id: string
  /** One line, without secrets and without paths of this host. */
  readonly reason: string
}

/** The fetched files of all sources of a folder, not yet in place. */
export interface Fetched {
  readonly candidates: ReadonlyArray<Candidate>
  readonly failures: ReadonlyArray<SourceFailure>
}

/** Git repositories that are synced into the definition folders. Default: none. */
export interface DefinitionSources {
  /**
   * Fetches the sources of a folder; the files in use do not change. At the start, each source has its own timeout;
   * later at most 20 s, so that a reload stays below the deadline of its route.
   *
   * @error InvalidSources the file that lists the sources is invalid
   */
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

export interface SourcesOptions {
  /** Path of the file that lists the sources. */
  readonly file: string
  readonly dataDir: string
  /** The definition folders, absolute. */
  readonly folders: Readonly<Record<SourceKind, string>>
  /** Environment of this process, for proxies and certificates. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Bound of a source's cache, in bytes. Default: 1 GiB. */
  readonly cacheBytes?: number
  /** Returns the variable with a token. Default: from `environment`. */
  readonly variable?: (name: string) => string | undefined
}

const RELOAD_SECONDS = 20

const PARALLEL_SYNCS = 8

const CACHE_BYTES = 1024 * 1024 * 1024

type Platform = FileSystem.FileSystem | Path.Path | ChildProcessSpawner

/** The sources that the stores sync before they read their folders. */
export const Sources: Context.Reference<DefinitionSources> = Context.Reference("muster/blueprints/Sources", {
  defaultValue: () => none
})

/** Syncs nothing; warns about files that an earlier start has placed, which stay. */
export const layerUnlisted = (options: Pick<SourcesOptions, "dataDir">) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const path = yield* Path.Path
      const directory = path.join(options.dataDir, "sources")
      for (const kind of ["blueprints", "software"]) yield* dropCaches(path.join(directory, kind), [])
      const placed = yield* readRecord(directory)
      if (placed.length === 0) return
      const names = placed.map(({ destinations, kind }) => `${destinations.at(-1)} (${kind})`).join(", ")
      yield* Effect.logWarning(
        `${SETTING} is not set; the definitions of these sources stay in use: ${names}`
      )
    }).pipe(Effect.catch((error) => Effect.logWarning(`the record of sources cannot be read: ${error._tag}`)))
  )

/**
 * Syncs the sources of a file. All syncs begin at once, when the layer is built; the start of a store waits for those
 * of its folder.
 *
 * @error InvalidSources the file is invalid: names line, column and reason
 * @error SyncFailed     the record of placed files cannot be used
 */
export const layerSources = (
  options: SourcesOptions
): Layer.Layer<never, InvalidSources | SyncFailed, Platform> =>
  Layer.effect(
    Sources,
    Effect.gen(function* () {
      const platform = yield* Effect.context<Platform>()
      const path = yield* Path.Path
      const directory = path.join(options.dataDir, "sources")
      const cacheOf = (kind: SourceKind, id: string) => path.join(directory, kind, id)
      const variable = options.variable ?? ((name: string) => options.environment[name])
      const read = Effect.tap(readSources(options.file), (sources) =>
        // Read before any program starts that could inherit it.
        Effect.sync(() => {
          for (const { token } of sources) if (token !== undefined && "env" in token) variable(token.env)
        })
      )
      let listed = yield* read
      const record = yield* openRecord(directory)
      const failures = new Map<string, string>()
      const placeOf = (kind: SourceKind): Place => ({ folder: options.folders[kind], owner: record.owner })

      const fetchOne = Effect.fnUntraced(function* (source: Source, seconds: number, began: number) {
        const left = seconds * 1000 - ((yield* elapsedMillis) - began)
        const place = placeOf(source.kind)
        const synced = yield* sync(source, place, {
          inPlace: yield* stateInUse(place, yield* record.find(source)),
          cache: cacheOf(source.kind, source.id),
          cacheBytes: options.cacheBytes ?? CACHE_BYTES,
          environment: options.environment,
          variable
        }).pipe(
          Effect.timeoutOrElse({
            duration: Math.max(left, 1),
            orElse: () => Effect.fail(new SyncFailed({ reason: `not done within ${seconds} s` }))
          })
        )
        return yield* arrival(source, synced, place, record)
      })

      const fetch = Effect.fnUntraced(function* (kind: SourceKind, when: "start" | "reload") {
        const began = yield* elapsedMillis
        listed = yield* read
        const ids = new Set(listed.filter((source) => source.kind === kind).map(({ id }) => id))
        const gone = (yield* record.all).filter((placed) => placed.kind === kind && !ids.has(placed.id))
        const limit = (source: Source) =>
          when === "start" ? source.timeout : Math.min(source.timeout, RELOAD_SECONDS)
        const results = yield* Effect.forEach(
          [
            ...listed
              .filter((source) => source.kind === kind)
              .map((source) => ({ id: source.id, run: fetchOne(source, limit(source), began) })),
            ...gone.map((placed) => ({ id: placed.id, run: departure(placed, placeOf(kind), record) }))
          ],
          ({ id, run }) => Effect.map(Effect.result(run), (result) => ({ id, result })),
          { concurrency: PARALLEL_SYNCS }
        )
        const candidates: Array<Candidate> = []
        const failed: Array<SourceFailure> = []
        for (const { id, result } of results) {
          if (Result.isFailure(result)) {
            failed.push({ id, reason: result.failure.reason })
            failures.set(id, result.failure.reason)
          } else {
            failures.delete(id)
            candidates.push({
              ...result.success,
              place: Effect.provideContext(result.success.place, platform)
            })
          }
        }
        return { candidates, failures: failed } satisfies Fetched
      })

      const clean = Effect.fnUntraced(
        function* (kind: SourceKind) {
          const place = placeOf(kind)
          const placed = (yield* record.all).filter((one) => one.kind === kind)
          const linked = yield* Effect.forEach(placed, ({ destinations, id }) =>
            Effect.forEach(destinations, (destination) => linkedState(place, id, destination))
          )
          yield* sweep(place, new Set(linked.flat().filter((state) => state !== undefined)))
          yield* dropCaches(
            path.join(directory, kind),
            listed.filter((source) => source.kind === kind).map(({ id }) => id)
          )
        },
        Effect.catch((error) =>
          Effect.logWarning(`the files of former syncs cannot be removed: ${error.message}`)
        )
      )

      const list = Effect.map(record.all, (placed) =>
        listed
          .map((source): SourceView => {
            const { commit = null, synced_at = null } =
              placed.find(({ id, kind }) => id === source.id && kind === source.kind) ?? {}
            return {
              id: source.id,
              kind: source.kind,
              url: source.address.url,
              ref: source.ref ?? null,
              path: source.path,
              destination: source.destination,
              commit,
              synced_at,
              error: failures.get(source.id) ?? null
            }
          })
          .sort((a, b) => (a.id < b.id ? -1 : 1))
      )

      const begin = (kind: SourceKind) =>
        Effect.forkScoped(Effect.provideContext(fetch(kind, "start"), platform))
      const started = { blueprints: yield* begin("blueprints"), software: yield* begin("software") }
      return {
        fetch: (kind, when) =>
          when === "start" ? Fiber.join(started[kind]) : Effect.provideContext(fetch(kind, when), platform),
        note: ({ id, reason }) => Effect.sync(() => failures.set(id, reason)),
        sweep: (kind) => Effect.provideContext(clean(kind), platform),
        list
      } satisfies DefinitionSources
    })
  )
