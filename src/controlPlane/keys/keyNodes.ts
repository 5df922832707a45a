import { Effect } from "effect"
import type { NodeId } from "../../contract/domain/Id.ts"
import { KeyRepo } from "../store/repos/KeyRepo.ts"
import { NodeRepo } from "../store/repos/NodeRepo.ts"
import { Store } from "../store/Store.ts"

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
