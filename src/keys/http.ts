import { Duration, Effect, Redacted } from "effect"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { CurrentPrincipal, type Principal } from "../api/Principal.ts"
import { handlersOf } from "../api/requestServices.ts"
import { Unauthorized } from "../domain/errors.ts"
import { DefinitionId } from "../domain/Id.ts"
import type { Key } from "../domain/Key.ts"
import { shownRights } from "../domain/KeyScope.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"
import { ApiKeys } from "./ApiKeys.ts"
import { keyNodes } from "./keyNodes.ts"

const viewOf = ({ hash: _, ...key }: KeyRecord): Key => key

/** Returns all that a caller may do. */
const ownKeyOf = ({ key_id: id, name, quota, restriction = {}, rights, scope }: Principal) => {
  const { blueprints, labels, servers } = restriction
  const { key_id: _, ...quotas } = quota ?? { key_id: id }
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
    ...quotas
  }
}

/** Handlers of the key routes (operators.md, "Keys"). */
export const KeysHandlers = handlersOf(
  ApplicationApi,
  "keys",
  Effect.fn(function* (handlers) {
    const keys = yield* ApiKeys
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
        return ownKeyOf(caller)
      }),
      revoke: ({ params }) => keys.revoke(params.key)
    })
  })
)
