import { Duration, Effect, Redacted } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import type { Key } from "../domain/Key.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"
import { ApiKeys } from "./ApiKeys.ts"

const viewOf = ({ hash: _, ...key }: KeyRecord): Key => key

/** Handlers of the key routes (operators.md, "Keys"). */
export const KeysHandlers = HttpApiBuilder.group(
  ApplicationApi,
  "keys",
  Effect.fn(function* (handlers) {
    const keys = yield* ApiKeys
    return handlers.handleAll({
      list: () => Effect.map(keys.list, (records) => records.map(viewOf)),
      create: Effect.fnUntraced(function* ({ payload: { expires_in, ...settings } }) {
        const { key, record } = yield* keys.create({
          ...settings,
          ...(expires_in === undefined ? {} : { expires: Duration.seconds(expires_in) })
        })
        return { ...viewOf(record), key: Redacted.value(key) }
      }),
      revoke: ({ params }) => keys.revoke(params.key)
    })
  })
)
