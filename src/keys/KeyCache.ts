import { DateTime, Effect, Option, Semaphore } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import { Freshness } from "../store/Freshness.ts"
import { Journal } from "../store/Journal.ts"
import { type KeyRecord, KeyRepo } from "../store/KeyRepo.ts"
import { Store } from "../store/Store.ts"

export interface CachedKey {
  readonly record: KeyRecord
  /** Milliseconds since the epoch; infinite: never. */
  readonly expiresAt: number
}

/**
 * Every key's record by its hash, in memory. The journal tells of changes, `Freshness` of the moments in which it may
 * not; only then a look-up asks for `KeyRepo.version` (one row), and reads all records again when it has changed. So a
 * change of any process counts at once. While the database is away what was read last goes on counting.
 */
export interface KeyCache {
  /** @error Unavailable the database cannot be reached and the key is not among those read last */
  find(hash: string): Effect.Effect<CachedKey | undefined, Unavailable>
}

interface Snapshot {
  readonly version: number
  /** Changes that the journal had told of, and the stamp of `Freshness`, before it was read. */
  readonly changes: number
  readonly stamp: number | undefined
  readonly byHash: ReadonlyMap<string, CachedKey>
}

export const KeyCache = {
  make: Effect.gen(function* () {
    const store = yield* Store
    const repo = yield* KeyRepo
    const journal = yield* Journal
    const freshness = yield* Freshness
    const oneAtATime = yield* Semaphore.make(1)
    let changes = 0
    let snapshot: Snapshot = { version: -1, changes: -1, stamp: undefined, byHash: new Map() }

    yield* journal.follow((entries) =>
      Effect.sync(() => {
        if (entries.some(({ change }) => change.topic === "key:changed")) changes += 1
      })
    )

    const isFresh = () =>
      snapshot.stamp !== undefined && snapshot.changes === changes && snapshot.stamp === freshness.stamp()

    const load = Effect.gen(function* () {
      const before = { changes, stamp: freshness.stamp() }
      const version = yield* repo.version
      // The version was read before the records: at worst they are newer, and are read once more.
      const byHash =
        version === snapshot.version
          ? snapshot.byHash
          : new Map((yield* repo.all).map((record) => [record.hash, toCached(record)]))
      snapshot = { version, ...before, byHash }
    })

    /** Those that come while it is being read wait for that. */
    const current = Effect.suspend(() => (isFresh() ? Effect.void : store.read(load))).pipe(
      oneAtATime.withPermit
    )

    const find = (hash: string): Effect.Effect<CachedKey | undefined, Unavailable> =>
      Effect.suspend(() => {
        if (isFresh()) return Effect.succeed(snapshot.byHash.get(hash))
        return Effect.matchEffect(current, {
          onSuccess: () => Effect.succeed(snapshot.byHash.get(hash)),
          onFailure: (unavailable) => {
            const known = snapshot.byHash.get(hash)
            return known === undefined ? Effect.fail(unavailable) : Effect.succeed(known)
          }
        })
      })

    return { find } satisfies KeyCache
  })
}

const toCached = (record: KeyRecord): CachedKey => ({ record, expiresAt: millisOf(record.expires_at) })

/** A date that cannot be read has passed: the safe reading. */
const millisOf = (date: string | null): number =>
  date === null
    ? Number.POSITIVE_INFINITY
    : Option.match(DateTime.make(date), { onNone: () => 0, onSome: DateTime.toEpochMillis })
