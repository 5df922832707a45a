import { timingSafeEqual } from "node:crypto"
import { Clock, Context, DateTime, Effect, Fiber, Layer, Metric, RcMap, Redacted, Schedule } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { InvalidRequest, NotFound, Unauthorized, type Unavailable } from "../../contract/domain/errors.ts"
import { type Quota, restrictionOf, rightsOf } from "../../contract/domain/Key.ts"
import { authFailures } from "../../shared/observability/metrics.ts"
import { defined } from "../../shared/work/defined.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { LOCAL_KEY, OUTSIDE_KEY, type Principal } from "../http/Principal.ts"
import { mayUseReserve } from "../store/disk/DatabaseDisk.ts"
import { KeyRepo } from "../store/repos/KeyRepo.ts"
import { QuotaRepo } from "../store/repos/QuotaRepo.ts"
import { Store } from "../store/Store.ts"
import { type CachedKey, KeyCache, millisOf } from "./KeyCache.ts"
import { generateKey, hashKey, isWellFormed, makeRecord } from "./keyFormat.ts"

/** `limited`: the address is over its limit, so the key was not compared with a short outside key. */
export type AuthFailure =
  | "no_header"
  | "malformed_header"
  | "malformed_key"
  | "unknown_key"
  | "revoked_key"
  | "expired_key"
  | "ticket"
  | "limited"

/** Counts a failed authentication for `/metrics`. */
export const countAuthFailure = (reason: AuthFailure): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(authFailures, { reason }), 1)

/** An outside key with fewer characters can be guessed. */
export const SHORTEST_SAFE_KEY = 24

/** API keys: creation, check, revocation (spec 6.1). */
export class ApiKeys extends Context.Service<ApiKeys>()("muster/keys/ApiKeys", {
  make: Effect.fnUntraced(function* (options: { readonly adminKey?: Redacted.Redacted<string> } = {}) {
    const store = yield* Store
    const repo = yield* KeyRepo
    const quotas = yield* QuotaRepo
    const cache = yield* KeyCache
    const adminText = options.adminKey === undefined ? "" : Redacted.value(options.adminKey)
    const adminHash = adminText === "" ? undefined : hashKey(adminText)
    const refuse = makeRefuse()
    const canBeGuessed = adminText.length < SHORTEST_SAFE_KEY

    const verifyKey = Effect.fnUntraced(function* (
      key: string,
      limited: Effect.Effect<boolean>
    ): Effect.fn.Return<Principal, Unauthorized | Unavailable> {
      const hash = hashKey(key)
      const compared = adminHash !== undefined && !(canBeGuessed && (yield* limited))
      if (compared && equalHashes(hash, adminHash)) return adminPrincipal
      if (!isWellFormed(key))
        return yield* refuse(compared || adminHash === undefined ? "malformed_key" : "limited")
      const known = yield* cache.find(({ byHash }) => byHash.get(hash))
      if (known === undefined || !equalHashes(hash, known.record.hash)) return yield* refuse("unknown_key")
      const { id, revoked_at } = known.record
      if (revoked_at !== null) return yield* refuse("revoked_key", id)
      if (known.expiresAt <= (yield* Clock.currentTimeMillis)) return yield* refuse("expired_key", id)
      const principal = principalOf(known)
      if (known.expiresAt === Number.POSITIVE_INFINITY) {
        const fresh = cache.fresh()
        if (fresh?.byHash.get(hash) === known) fresh.verified.set(key, Effect.succeed(principal))
      }
      return principal
    })

    const verify = (key: string, limited: Effect.Effect<boolean> = Effect.succeed(false)) =>
      cache.fresh()?.verified.get(key) ?? verifyKey(key, limited)

    const create = Effect.fn("ApiKeys.create")(function* (settings: Parameters<typeof makeRecord>[1]) {
      const key = yield* generateKey
      const record = yield* makeRecord(key, settings)
      yield* describeAudit({ id: record.id })
      const { quota } = record
      const insert = Effect.gen(function* () {
        const exists = quota === undefined || (yield* quotas.find(quota)) !== undefined
        if (!exists) return yield* noSuchQuota(quota)
        yield* repo.insert(record)
      })
      yield* store.write(insert)
      yield* Effect.logInfo("API key created").pipe(
        Effect.annotateLogs({ key_id: record.id, scope: record.scope })
      )
      return { key, record }
    })

    const revoke = Effect.fn("ApiKeys.revoke")(function* (id: string) {
      const now = DateTime.formatIso(yield* DateTime.now)
      const revoked = Effect.filterOrFail(
        repo.revoke(id, now),
        (isRevoked) => isRevoked,
        () => noSuchKey(id)
      )
      yield* mayUseReserve(store.write(revoked))
      yield* Effect.logInfo("API key revoked").pipe(Effect.annotateLogs({ key_id: id }))
    })

    const holder = (id: string) =>
      id === OUTSIDE_KEY || id === LOCAL_KEY
        ? Effect.succeed(id === OUTSIDE_KEY ? adminPrincipal : localPrincipal)
        : cache.find(({ byId }) => {
            const known = byId.get(id)
            return known === undefined ? undefined : principalOf(known)
          })

    const unlessOver = Effect.fnUntraced(function* (known: CachedKey | undefined) {
      if (known === undefined || known.record.revoked_at !== null) return undefined
      return known.expiresAt <= (yield* Clock.currentTimeMillis) ? undefined : principalOf(known)
    })

    const holderOfSsh = (fingerprint: string) =>
      Effect.flatMap(
        cache.find(({ bySsh }) => bySsh.get(fingerprint)),
        unlessOver
      )

    const validHolder = (id: string) =>
      id === OUTSIDE_KEY || id === LOCAL_KEY
        ? holder(id)
        : Effect.flatMap(cache.current, ({ byId }) => unlessOver(byId.get(id)))

    const endedBetween = (from: number, to: number) =>
      Effect.map(cache.current, ({ byId }) =>
        [...byId.values()].flatMap(({ expiresAt, record: { id, revoked_at } }) => {
          const at = Math.min(expiresAt, millisOf(revoked_at))
          return at > from && at <= to ? [id] : []
        })
      )

    const ended = yield* makeEnded(cache)

    return {
      /**
       * Returns the holder of `key`. Unknown, revoked and expired keys look the same to the caller, not in the log.
       * @param limited whether the caller has failed too often: no outside key below {@link SHORTEST_SAFE_KEY} is
       * compared
       * @error Unavailable the database cannot be reached and nothing is cached
       */
      verify,
      /** Makes a key; the store has only its hash. @error InvalidRequest there is no such quota */
      create,
      /** @error NotFound there is no such key, or it is revoked already */
      revoke,
      /** Returns the holder of a key by its id, for a ticket, if there is such a key. */
      holder,
      /** Returns the holder of the valid key that has an SSH key, by its fingerprint. */
      holderOfSsh,
      /** Returns the holder of a key by its id, unless it is revoked or has expired. */
      validHolder,
      /** Waits until the key with this id, or an SSH key, is no longer valid, accurate to a quarter of a second. */
      ended,
      /** Returns the ids of keys that were revoked or have expired between two times, in ms since the epoch. */
      endedBetween,
      list: store.read(repo.all)
    }
  })
}) {
  /** @param options.adminKey an AppAdmin key from outside, any text; an empty one counts as none */
  static readonly layer = (...options: Parameters<typeof ApiKeys.make>) =>
    Layer.effect(ApiKeys, ApiKeys.make(...options)).pipe(Layer.provide(KeyCache.layer))
}

/** Interval of the checks of a key. Other processes revoke keys in the database only. */
const EVERY = "250 millis"

/** Callers that wait for one key share a check. While the database is unavailable, keys stay valid. */
const makeEnded = Effect.fnUntraced(function* (cache: KeyCache["Service"]) {
  const isOver = (id: string) =>
    Effect.gen(function* () {
      const { byId, bySsh } = yield* cache.current
      const found = byId.get(id) ?? bySsh.get(id)
      const now = yield* Clock.currentTimeMillis
      return found === undefined || found.record.revoked_at !== null || found.expiresAt <= now
    }).pipe(
      Effect.catch((error) =>
        Effect.as(Effect.logDebug(`the keys of open streams cannot be read: ${error.detail}`), false)
      )
    )
  const checks = yield* RcMap.make({
    lookup: (id: string) =>
      Effect.forkScoped(
        Effect.repeat(isOver(id), { until: (over) => over, schedule: Schedule.spaced(EVERY) })
      )
  })
  return (id: string): Effect.Effect<void> =>
    // The outside key and the socket end with the process.
    id === OUTSIDE_KEY || id === LOCAL_KEY
      ? Effect.never
      : Effect.asVoid(Effect.scoped(Effect.flatMap(RcMap.get(checks, id), Fiber.join)))
})

const principalOf = ({ record, shared }: CachedKey): Principal => {
  const { id, max_memory, max_servers, name, paths, scope } = record
  const isLimited = scope === "Operator" || scope === "ReadOnly"
  const restriction = restrictionOf(record)
  const own: Quota = {
    key_id: id,
    ...defined({ max_servers, max_memory })
  }
  const hasOwn = max_servers !== undefined || max_memory !== undefined
  const quotas = [...(hasOwn ? [own] : []), ...(shared === undefined ? [] : [shared])]
  return {
    key_id: id,
    name,
    scope,
    ...(isLimited ? { rights: rightsOf(record) } : {}),
    ...defined({ restriction, paths }),
    ...(quotas.length === 0 ? {} : { quotas })
  }
}

export const localPrincipal: Principal = { key_id: LOCAL_KEY, name: LOCAL_KEY, scope: "AppAdmin" }

const adminPrincipal: Principal = { key_id: OUTSIDE_KEY, name: "APP_ADMIN_API_KEY", scope: "AppAdmin" }

/** Takes the same time for all hashes; both are SHA-256 in hex. */
const equalHashes = (one: string, other: string): boolean =>
  one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other))

const messageOf = (why: AuthFailure) => `API key refused: ${why.replace("_key", "")}`

const LOG_EVERY_MILLIS = 60_000

/** Returns one response for every reason; the log has the reason and the key's id, once a minute. */
const makeRefuse = () => {
  const ended = new Map<string, { loggedAt: number; refused: number }>()
  const log = Effect.fnUntraced(function* (why: AuthFailure, key_id: string) {
    const now = yield* elapsedMillis
    const last = ended.get(key_id) ?? { loggedAt: Number.NEGATIVE_INFINITY, refused: 0 }
    ended.set(key_id, last)
    last.refused += 1
    if (now - last.loggedAt < LOG_EVERY_MILLIS) return
    const { refused } = last
    last.loggedAt = now
    last.refused = 0
    yield* Effect.logInfo(messageOf(why)).pipe(Effect.annotateLogs({ key_id, refused }))
  })
  return (why: AuthFailure, key_id?: string) =>
    countAuthFailure(why).pipe(
      Effect.andThen(key_id === undefined ? Effect.logDebug(messageOf(why)) : log(why, key_id)),
      Effect.andThen(
        Effect.fail(
          new Unauthorized({
            detail: "the API key is not valid",
            hint: "The key is mistyped, revoked or expired: check it with `muster keys list`; `muster keys create` makes another."
          })
        )
      )
    )
}

const noSuchQuota = (name: string) =>
  new InvalidRequest({
    detail: `body field quota: no quota has this name: ${name}`,
    hint: "GET /api/quotas lists what exists; POST /api/quotas creates another."
  })

const noSuchKey = (id: string) =>
  new NotFound({
    detail: `key not found, or revoked already: ${id}`,
    hint: "`muster keys list` shows what exists."
  })
