import { Clock, Duration, Effect, Redacted } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest, NotFound, named, Unauthorized } from "../../contract/domain/errors.ts"
import { DefinitionId } from "../../contract/domain/Id.ts"
import { type Key, type Quota, type QuotaLimits, shownRights } from "../../contract/domain/Key.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { defined } from "../../shared/work/defined.ts"
import { CurrentPrincipal, type Principal } from "../http/Principal.ts"
import { type KeyRecord, KeyRepo } from "../store/repos/KeyRepo.ts"
import { type QuotaRecord, QuotaRepo, type Usage, unused, useOf } from "../store/repos/QuotaRepo.ts"
import { Store } from "../store/Store.ts"
import { ApiKeys } from "./ApiKeys.ts"
import { millisOf } from "./KeyCache.ts"
import { keyNodes } from "./NodeKeys.ts"

const viewOf = ({ hash: _, ...key }: KeyRecord): Key => key

/** Returns all that a caller may do, with the use of its quotas; without the use while that cannot be read. */
const makeOwnKey = Effect.gen(function* () {
  const repo = yield* QuotaRepo
  const store = yield* Store
  const withUse = (quota: Quota) => {
    const { key_id: _, name: __, ...limits } = quota
    return Effect.match(store.read(repo.use(quota)), {
      onFailure: () => limits,
      onSuccess: ({ used }) => ({ ...limits, used: useOf(used) })
    })
  }
  return Effect.fnUntraced(function* ({
    key_id: id,
    name,
    paths,
    quotas = [],
    restriction = {},
    rights,
    scope
  }: Principal) {
    const { blueprints, labels, servers } = restriction
    const own = quotas.find((quota) => quota.name === undefined)
    const shared = quotas.find((quota) => quota.name !== undefined)
    return {
      id,
      name,
      scope,
      rights: shownRights(rights),
      ...(servers === undefined ? {} : { servers: [...servers] }),
      ...(blueprints === undefined
        ? {}
        : { blueprints: [...blueprints].map((blueprint) => DefinitionId.make(blueprint)) }),
      ...defined({ labels, paths }),
      ...(own === undefined ? {} : yield* withUse(own)),
      ...(shared === undefined ? {} : { quota: { name: shared.name, ...(yield* withUse(shared)) } })
    }
  })
})

/** Handlers of the key routes (spec 6.2). */
export const KeysHandlers = handlersOf(
  ApplicationApi,
  "keys",
  Effect.fn(function* (handlers) {
    const keys = yield* ApiKeys
    const ownKeyOf = yield* makeOwnKey
    const context = yield* Effect.context<Effect.Services<typeof keyNodes>>()
    const list = Effect.fnUntraced(function* (withNodes: boolean) {
      const records = yield* keys.list
      if (!withNodes) return records.map(viewOf)
      const nodes = yield* Effect.provideContext(keyNodes, context)
      const none = { node_id: null, last_seen_at: null }
      return records.map((record) => ({ ...viewOf(record), ...(nodes.get(record.id) ?? none) }))
    })
    return handlers.handleAll({
      list: ({ query: { include = "" } }) => list(include.split(",").includes("node")),
      create: Effect.fnUntraced(function* ({ payload: { expires_in, ...settings } }) {
        const { key, record } = yield* keys.create({
          ...settings,
          ...(expires_in === undefined ? {} : { expires: Duration.seconds(expires_in) })
        })
        return { ...viewOf(record), key: Redacted.value(key) }
      }),
      self: Effect.fnUntraced(function* () {
        const caller = yield* CurrentPrincipal
        if (caller === undefined) return yield* new Unauthorized({ detail: "no API key was given" })
        return yield* ownKeyOf(caller)
      }),
      revoke: ({ params }) => keys.revoke(params.key)
    })
  })
)

const quotaView = ({ created_at, limits, name }: QuotaRecord, used: Usage = unused) => ({
  name,
  ...limits,
  created_at,
  used: useOf(used)
})

const notFound = (name: string) =>
  new NotFound({ detail: `quota not found: ${name}`, hint: "GET /api/quotas lists what exists." })

/** Returns limits after a change; null removes one. */
const merged = (
  limits: QuotaLimits,
  change: { readonly [K in keyof QuotaLimits]?: QuotaLimits[K] | null }
): QuotaLimits =>
  Object.fromEntries(Object.entries({ ...limits, ...change }).filter(([, value]) => value !== null))

/** Handlers of the routes of quotas (spec 6.4). */
export const QuotasHandlers = handlersOf(
  ApplicationApi,
  "quotas",
  Effect.fn(function* (handlers) {
    const keys = yield* KeyRepo
    const quotas = yield* QuotaRepo
    const store = yield* Store

    const found = Effect.fnUntraced(function* (name: string) {
      const record = yield* quotas.find(name)
      return record ?? (yield* notFound(name))
    })
    const withUse = Effect.fnUntraced(function* (record: QuotaRecord) {
      const { used } = yield* quotas.use({ name: record.name })
      return quotaView(record, used)
    })

    return handlers.handleAll({
      list: () =>
        store.read(
          Effect.gen(function* () {
            const usages = yield* quotas.usages
            return (yield* quotas.all).map((quota) => quotaView(quota, usages.get(quota.name)))
          })
        ),
      create: Effect.fnUntraced(function* ({ payload: { name, ...limits } }) {
        yield* describeAudit({ id: name, changes: Object.keys(limits) })
        const created_at = yield* nowText
        const insert = Effect.gen(function* () {
          if ((yield* quotas.find(name)) !== undefined) {
            return yield* new Conflict({
              detail: `a quota has this name: ${name}`,
              hint: "Choose another name, or change the quota: PATCH /api/quotas/:quota."
            })
          }
          const record: QuotaRecord = { name, limits, created_at }
          yield* quotas.put(record)
          // Of servers that keys of a deleted quota of this name have left.
          return yield* withUse(record)
        })
        return yield* store.write(insert)
      }),
      get: ({ params }) => store.read(Effect.flatMap(found(params.quota), withUse)),
      patch: Effect.fnUntraced(function* ({ params, payload }) {
        yield* describeAudit({ changes: Object.keys(payload) })
        const change = Effect.gen(function* () {
          const before = yield* found(params.quota)
          const record = { ...before, limits: merged(before.limits, payload) }
          if (Object.keys(record.limits).length === 0) {
            return yield* new InvalidRequest({
              detail: `quota ${before.name} would limit nothing`,
              hint: "Leave at least one of max_servers, max_memory, max_cpu and max_disk."
            })
          }
          yield* quotas.put(record)
          return yield* withUse(record)
        })
        return yield* store.write(change)
      }),
      remove: Effect.fnUntraced(function* ({ params: { quota: name } }) {
        const now = yield* Clock.currentTimeMillis
        const remove = Effect.gen(function* () {
          yield* found(name)
          const used = (yield* keys.all).filter(
            ({ expires_at, quota, revoked_at }) =>
              quota === name && revoked_at === null && millisOf(expires_at) > now
          )
          if (used.length > 0) {
            const keysOf = named(used.map((key) => `${key.id} (${key.name})`))
            return yield* new Conflict({
              detail: `keys have the quota ${name}: ${keysOf}`,
              hint: "Revoke these keys first: DELETE /api/keys/:key."
            })
          }
          yield* quotas.remove(name)
        })
        yield* store.write(remove)
      })
    })
  })
)
