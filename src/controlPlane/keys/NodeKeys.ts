import { Clock, Context, Effect, Layer } from "effect"
import { Forbidden, Unauthorized } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { KeyRepo, type NodeBinding } from "../store/repos/KeyRepo.ts"
import { NodeRepo } from "../store/repos/NodeRepo.ts"
import { Store } from "../store/Store.ts"
import { KeyCache, millisOf } from "./KeyCache.ts"

const isLive = ({ expires_at, revoked_at }: NodeBinding, now: number) =>
  revoked_at === null && millisOf(expires_at) > now

const taken = (node_id: NodeId) =>
  new Forbidden({
    detail: `node ${node_id} is bound to another key`,
    hint: "Use its own key, revoke that one first, or give the daemon an id of its own with MUSTER_NODE_ID."
  })

const caller = Effect.flatMap(CurrentPrincipal, (principal) =>
  principal === undefined ? new Unauthorized({ detail: "no API key was given" }) : Effect.succeed(principal)
)

/**
 * Binds keys to nodes: the first node that registers with a key owns it. Another key can take over the node once the
 * first is revoked or expired, or the node was removed.
 */
export class NodeKeys extends Context.Service<NodeKeys>()("muster/keys/NodeKeys", {
  make: Effect.gen(function* () {
    const store = yield* Store
    const cache = yield* KeyCache
    const repo = yield* KeyRepo

    const nodeOf = (key_id: string) => cache.find(({ nodes }) => nodes.get(key_id))

    const belongsTo = Effect.fnUntraced(function* (owner: string, node_id: NodeId) {
      if (owner === node_id) return
      return yield* new Forbidden({
        detail: "the API key is that of another node",
        hint: "Make one for each node: `muster keys create --scope Node --name <name>`."
      })
    })

    /** One transaction: of two keys that claim a node at the same time, one gets it. */
    const claim = Effect.fnUntraced(function* (key_id: string, node_id: NodeId, now: number) {
      const owner = yield* repo.nodeOf(key_id)
      if (owner !== undefined) return owner
      const others = yield* repo.bindingsOf(node_id)
      if (others.some((other) => isLive(other, now))) return yield* taken(node_id)
      // A known node that never had a key is embedded.
      if (others.length === 0 && (yield* repo.isKnown(node_id))) return yield* taken(node_id)
      return yield* repo.bind(key_id, node_id)
    })

    return {
      /**
       * Binds the key of the current request to a node.
       * @error Forbidden the key belongs to another node, or the node to another key, or to a service
       */
      bind: Effect.fn("NodeKeys.bind")(function* (node_id: NodeId) {
        const { key_id } = yield* caller
        const now = yield* Clock.currentTimeMillis
        const owner = (yield* nodeOf(key_id)) ?? (yield* store.write(claim(key_id, node_id, now)))
        // A key that was valid a moment ago is always known.
        yield* belongsTo(owner ?? "", node_id)
      }),
      /** Fails unless the node has the key of the current request. Returns `"unbound"` if no node has it. */
      check: Effect.fnUntraced(function* (node_id: NodeId) {
        const { key_id } = yield* caller
        const owner = yield* nodeOf(key_id)
        if (owner === undefined) return "unbound" as const
        yield* belongsTo(owner, node_id)
        return "own" as const
      }),
      /** Returns the nodes whose keys are all invalid now, in any process. */
      revoked: Effect.fnUntraced(function* (node_ids: ReadonlyArray<NodeId>) {
        const { byNode } = yield* cache.current
        const now = yield* Clock.currentTimeMillis
        return node_ids.filter((id) => byNode.get(id)?.some((binding) => isLive(binding, now)) === false)
      })
    }
  })
}) {
  static readonly layer = Layer.effect(NodeKeys, NodeKeys.make).pipe(Layer.provide(KeyCache.layer))
}

const later = (one: string | null, other: number | undefined): string | null =>
  other === undefined || (one !== null && Date.parse(one) >= other) ? one : new Date(other).toISOString()

/** Each node has its last heartbeat in the database, at most a minute too early (RFC 3339 UTC). */
export const keyNodes = Effect.gen(function* () {
  const store = yield* Store
  const nodes = yield* NodeRepo
  const bindings = yield* store.read((yield* KeyRepo).bindings)
  const heartbeats = yield* store.read(nodes.heartbeats)
  const heard = new Map(heartbeats.map(({ heard_at, node_id }) => [node_id, heard_at]))
  const seen = new Map<NodeId, string | null>(
    (yield* store.read(nodes.all)).map(({ id, last_seen_at }) => [id, later(last_seen_at, heard.get(id))])
  )
  return new Map(
    bindings.map(({ key_id, node_id }) => [key_id, { node_id, last_seen_at: seen.get(node_id) ?? null }])
  )
})
