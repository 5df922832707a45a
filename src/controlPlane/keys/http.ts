import { Duration, Effect, Redacted } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { Unauthorized } from "../../contract/domain/errors.ts"
import { DefinitionId } from "../../contract/domain/Id.ts"
import { type Key, shownRights } from "../../contract/domain/Key.ts"
import type { Quota } from "../../contract/domain/Quota.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, type Principal } from "../http/Principal.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"
import { QuotaRepo, useOf } from "../store/repos/QuotaRepo.ts"
import { Store } from "../store/Store.ts"
import { ApiKeys } from "./ApiKeys.ts"
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
      ...(labels === undefined ? {} : { labels }),
      ...(paths === undefined ? {} : { paths }),
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
