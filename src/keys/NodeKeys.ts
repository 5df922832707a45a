import { Context, Effect, Layer } from "effect"
import { NodeAuthorization } from "../api/NodeApi.ts"
import { Forbidden, type Unauthorized, type Unavailable } from "../domain/errors.ts"
import { NodeKeyRepo } from "../store/NodeKeyRepo.ts"
import { Store } from "../store/Store.ts"
import { requireScope } from "./authorization.ts"

type Refused = Unauthorized | Forbidden | Unavailable

/** A node's key is bound to the first node id that registers with it, for good. */
export class NodeKeys extends Context.Service<
  NodeKeys,
  {
    /** Binds the key of the current request to a node. @error Forbidden it belongs to another */
    bind(node_id: string): Effect.Effect<void, Refused>
    /** Fails unless the key of the current request belongs to the node. */
    check(node_id: string): Effect.Effect<void, Refused>
  }
>()("muster/keys/NodeKeys") {
  static readonly layer = Layer.effect(
    NodeKeys,
    Effect.gen(function* () {
      const store = yield* Store
      const repo = yield* NodeKeyRepo
      /** Node by key. A binding never changes, so that what was read once holds, also while the database is away. */
      const bound = new Map<string, string>()

      const settle = Effect.fnUntraced(function* (
        key_id: string,
        node_id: string,
        owner: string | undefined
      ) {
        if (owner !== undefined) bound.set(key_id, owner)
        if (owner === node_id) return
        return yield* new Forbidden(
          owner === undefined
            ? { detail: "the API key belongs to no node", hint: "Register with it first." }
            : {
                detail: "the API key belongs to another node",
                hint: "Make one for each node: `muster keys create --scope Node`."
              }
        )
      })

      return NodeKeys.of({
        bind: Effect.fn("NodeKeys.bind")(function* (node_id) {
          const { key_id } = yield* requireScope("Node")
          const owner = bound.get(key_id) ?? (yield* store.write(repo.bind(key_id, node_id)))
          yield* settle(key_id, node_id, owner)
        }),
        check: Effect.fnUntraced(function* (node_id) {
          const { key_id } = yield* requireScope("Node")
          const owner = bound.get(key_id) ?? (yield* store.read(repo.nodeOf(key_id)))
          yield* settle(key_id, node_id, owner)
        })
      })
    })
  )
}

/** `NodeAuthorization`: the principal that the request was authenticated as has the scope `Node`. */
export const NodeAuthorizationLayer = Layer.succeed(
  NodeAuthorization,
  NodeAuthorization.of({ bearer: (handler) => Effect.andThen(requireScope("Node"), handler) })
)
