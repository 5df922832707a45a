import { DateTime, Effect, Option } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import { type KeyRecord, KeyRepo } from "../store/KeyRepo.ts"
import { Store } from "../store/Store.ts"

export interface CachedKey {
  readonly record: KeyRecord
  /** Milliseconds since the epoch; infinite: never. */
  readonly expiresAt: number
}

/**
 * Every key's record by its hash. Each look-up asks for `KeyRepo.version` (one row) and reads all records again when
 * it has changed, so that a change of any process counts at once. While the database is away what was read last
 * goes on counting.
 */
export interface KeyCache {
  /** @error Unavailable the database cannot be reached and the key is not among those read last */
  find(hash: string): Effect.Effect<CachedKey | undefined, Unavailable>
}

interface Snapshot {
  readonly version: number
  readonly byHash: ReadonlyMap<string, CachedKey>
}

export const KeyCache = {
  make: Effect.gen(function* () {
    const store = yield* Store
    const repo = yield* KeyRepo
    let snapshot: Snapshot = { version: -1, byHash: new Map() }

    const load = Effect.fnUntraced(function* (version: number) {
      // The version was read before the records: at worst they are newer, and the next look-up reads them again.
      const records = yield* repo.all
      snapshot = { version, byHash: new Map(records.map((record) => [record.hash, toCached(record)])) }
      return snapshot
    })

    const current = store.read(
      Effect.flatMap(repo.version, (version) =>
        version === snapshot.version ? Effect.succeed(snapshot) : load(version)
      )
    )

    const find = (hash: string) =>
      Effect.matchEffect(current, {
        onSuccess: ({ byHash }) => Effect.succeed(byHash.get(hash)),
        onFailure: (unavailable) => {
          const known = snapshot.byHash.get(hash)
          return known === undefined ? Effect.fail(unavailable) : Effect.succeed(known)
        }
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
