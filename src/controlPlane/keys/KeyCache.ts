import { Context, DateTime, Effect, Layer, Option, Semaphore } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { Quota } from "../../contract/domain/Key.ts"
import type { Principal } from "../http/Principal.ts"
import { Freshness, Journal } from "../store/journal/Journal.ts"
import { type KeyRecord, KeyRepo, type NodeBinding } from "../store/repos/KeyRepo.ts"
import { limitsOf, type QuotaRecord, QuotaRepo } from "../store/repos/QuotaRepo.ts"
import { SshKeyRepo } from "../store/repos/SftpRepo.ts"
import { Store } from "../store/Store.ts"

export interface CachedKey {
  readonly record: KeyRecord
  /** Milliseconds since the epoch; infinite: never. */
  readonly expiresAt: number
  readonly shared?: Quota
}

export interface Keys {
  readonly byHash: ReadonlyMap<string, CachedKey>
  readonly byId: ReadonlyMap<string, CachedKey>
  /** Keys by the fingerprints of their SSH keys. */
  readonly bySsh: ReadonlyMap<string, CachedKey>
  /** Nodes by the id of their keys. */
  readonly nodes: ReadonlyMap<string, NodeId>
  /** Keys of each node, with revoked and expired ones. */
  readonly byNode: ReadonlyMap<NodeId, ReadonlyArray<NodeBinding>>
  /** Holders of keys that these records admit at any time, by the text of the key; a new read of the records empties it. */
  readonly verified: Map<string, Effect.Effect<Principal>>
}

interface Snapshot extends Keys {
  readonly version: number
  /** The number of changes in the journal, and the stamp of `Freshness`, before the read. */
  readonly changes: number
  readonly stamp: number | undefined
}

const nothing: Keys = {
  byHash: new Map(),
  byId: new Map(),
  bySsh: new Map(),
  nodes: new Map(),
  byNode: new Map(),
  verified: new Map()
}

/**
 * The records of all keys, in memory. Only when the journal or `Freshness` announces a change, a query reads
 * `KeyRepo.version`, and all records if it differs: a change of any process applies at once.
 */
export class KeyCache extends Context.Service<KeyCache>()("muster/keys/KeyCache", {
  make: Effect.gen(function* () {
    const store = yield* Store
    const repo = yield* KeyRepo
    const quotaRepo = yield* QuotaRepo
    const sshRepo = yield* SshKeyRepo
    const journal = yield* Journal
    const freshness = yield* Freshness
    const oneAtATime = yield* Semaphore.make(1)
    let changes = 0
    let snapshot: Snapshot = { ...nothing, version: -1, changes: -1, stamp: undefined }

    yield* journal.follow("read-model", (entries) =>
      Effect.sync(() => {
        if (entries.some(({ change }) => change.topic === "key:changed")) changes += 1
      })
    )

    const isFresh = () =>
      snapshot.stamp !== undefined && snapshot.changes === changes && snapshot.stamp === freshness.stamp()

    const readAll = Effect.gen(function* () {
      const quotas = new Map((yield* quotaRepo.all).map((quota) => [quota.name, quota]))
      const keys = (yield* repo.all).map((record) => toCached(record, quotas))
      const bindings = yield* repo.bindings
      const byId = new Map(keys.map((key) => [key.record.id, key]))
      const bySsh = (yield* sshRepo.all).flatMap(({ fingerprint, key_id }) => {
        const key = byId.get(key_id)
        return key === undefined ? [] : [[fingerprint, key] as const]
      })
      return {
        byHash: new Map(keys.map((key) => [key.record.hash, key])),
        byId,
        bySsh: new Map(bySsh),
        nodes: new Map(bindings.map(({ key_id, node_id }) => [key_id, node_id])),
        byNode: Map.groupBy(bindings, ({ node_id }) => node_id),
        verified: new Map()
      } satisfies Keys
    })

    const load = Effect.gen(function* () {
      const before = { changes, stamp: freshness.stamp() }
      const version = yield* repo.version
      // The version was read before the records: at worst they are newer, and are read again.
      const keys = version === snapshot.version ? snapshot : yield* readAll
      snapshot = { ...keys, version, ...before }
    })

    const reloaded = Effect.suspend(() => (isFresh() ? Effect.void : store.read(load))).pipe(
      oneAtATime.withPermit
    )
    const current = Effect.suspend(() =>
      isFresh() ? Effect.succeed(snapshot) : Effect.map(reloaded, () => snapshot)
    )

    return {
      /** @error Unavailable the database cannot be reached */
      current,
      /** The records in memory, if they are up to date. */
      fresh: (): Keys | undefined => (isFresh() ? snapshot : undefined),
      /** Returns the result of `pick`, also from old records. @error Unavailable `pick` finds nothing in them */
      find: <A>(pick: (keys: Keys) => A | undefined): Effect.Effect<A | undefined, Unavailable> =>
        Effect.matchEffect(current, {
          onSuccess: (keys) => Effect.succeed(pick(keys)),
          onFailure: (unavailable) => {
            const known = pick(snapshot)
            return known === undefined ? Effect.fail(unavailable) : Effect.succeed(known)
          }
        })
    }
  })
}) {
  static readonly layer = Layer.effect(KeyCache, KeyCache.make)
}

const toCached = (record: KeyRecord, quotas: ReadonlyMap<string, QuotaRecord>): CachedKey => {
  const { expires_at, quota: name } = record
  return {
    record,
    expiresAt: millisOf(expires_at),
    ...(name === undefined ? {} : { shared: { name, ...limitsOf(quotas.get(name)) } })
  }
}

/** Returns a date in milliseconds since the epoch. An invalid date counts as past: the safe reading. */
export const millisOf = (date: string | null): number =>
  date === null
    ? Number.POSITIVE_INFINITY
    : Option.match(DateTime.make(date), { onNone: () => 0, onSome: DateTime.toEpochMillis })
