import { Effect } from "effect"
import { checkDestination, makeState, type Place } from "./placement.ts"
import { SyncFailed } from "./reasons.ts"
import { fetchCommit, readCommit, withCache } from "./repository.ts"
import type { Source } from "./Source.ts"
import { login } from "./token.ts"
import { holdsOnly, writeTree } from "./tree.ts"

/** The current files of a source, in a new state or in the one in place. */
export interface Synced {
  readonly commit: string
  /** The folder of the files: a new one, or the one in place if nothing has changed. */
  readonly state: string
}

/**
 * Fetches one source and writes its definition files into a new state; files in use do not change.
 *
 * @param options.inPlace the state in use, if any
 * @param options.cache the folder of the source's cache
 */
export const sync = Effect.fn("sync")(function* (
  source: Source,
  place: Place,
  options: {
    readonly inPlace: string | undefined
    readonly cache: string
    /** Bound of the cache, in bytes. */
    readonly cacheBytes: number
    readonly environment: Readonly<Record<string, string | undefined>>
    /** Returns the variable with a token. */
    readonly variable: (name: string) => string | undefined
  }
) {
  yield* checkDestination(place, source.id, source.destination)
  const { authorization, secrets } = yield* login(source, options.variable)
  const { commit, files } = yield* withCache(
    options.cache,
    options.cacheBytes,
    Effect.fnUntraced(function* (directory: string, fresh: boolean) {
      const { environment } = options
      const { address, ca_file } = source
      const context = {
        directory,
        address,
        authorization,
        secrets,
        ca_file,
        environment,
        maxBytes: options.cacheBytes
      }
      const commit = yield* fetchCommit(source, context, fresh)
      return { commit, files: yield* readCommit(source, context, commit) }
    })
  )
  if (files.length === 0) {
    const where = source.path === "" ? "in it" : `in its folder \`${source.path}\``
    return yield* new SyncFailed({ reason: `there is no *.yml or *.yaml file ${where}` })
  }
  if (options.inPlace !== undefined && (yield* holdsOnly(options.inPlace, files))) {
    return { commit, state: options.inPlace } satisfies Synced
  }
  const state = yield* makeState(place, source.id)
  yield* writeTree(state, files)
  return { commit, state } satisfies Synced
})
