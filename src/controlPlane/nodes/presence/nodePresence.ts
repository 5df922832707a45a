import { Duration, Effect, PubSub, Stream } from "effect"
import { DatabaseFull, type Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { NodeUsage } from "../../../contract/domain/Node.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { Leadership } from "../../store/Leadership.ts"
import { type NodeRecord, NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { Fleet } from "../fleet/Fleet.ts"
import { appendNodeChanged, followNodeChanges } from "../fleet/nodeChangeFeed.ts"
import { makeFailureDetector } from "./failureDetector.ts"
import { shareHeartbeats } from "./SharedHeartbeats.ts"

/** Reads the heartbeats that other replicas received: this often, and this many times within the heartbeat timeout. */
const LOOK_MILLIS = 2_000
const LOOKS = 10
/** A single replica writes the heartbeats this often, for `muster keys list` and the next start. */
const NOTED_MILLIS = 60_000

/** A node connected, is reachable again, was lost (no heartbeat for 30 s), or was given up (for 10 min). */
export interface NodeChange {
  readonly node_id: NodeId
  readonly kind: "connected" | "reachable" | "lost" | "given-up"
}

/** Disconnects all nodes at the first start on a database, as a restored one has their state at its backup. */
const resetConnections = Effect.gen(function* () {
  const leadership = yield* Leadership
  const repo = yield* NodeRepo
  const store = yield* Store
  const reset = Effect.flatMap(repo.resetConnections, (ids) =>
    Effect.forEach(leadership.isSingle ? [] : ids, (id) => appendNodeChanged(id, "expelled"), {
      discard: true
    })
  )
  if (!leadership.isFirst) return
  yield* mayUseReserve(store.write(reset)).pipe(
    Effect.catchIf(
      (error) => error instanceof DatabaseFull,
      (error) => Effect.logWarning(`nodes of the last run count as connected for now: ${error.detail}`)
    )
  )
})

/** Keeps the nodes in memory up to date, shares their heartbeats and detects lost nodes. */
export const makeNodePresence = Effect.fnUntraced(function* (options: {
  readonly heartbeatTimeout: Duration.Duration
  readonly nodeLostAfter: Duration.Duration
}) {
  const fleet = yield* Fleet
  const { isSingle } = yield* Leadership
  const hub = yield* PubSub.unbounded<NodeChange>()
  yield* resetConnections
  let detector: Effect.Success<ReturnType<typeof makeFailureDetector>> | undefined

  const onRecord = (id: NodeId, record: NodeRecord | undefined) => {
    const before = fleet.get(id)?.record
    if (record === undefined) return detector?.forget(id)
    const isNew = record.token !== before?.token && record.connected
    if (isNew || record.departed !== before?.departed) detector?.record(id)
  }
  const refresh = yield* followNodeChanges({
    onRecord,
    onChange: (change) => {
      const { node_id } = change
      const kind = change.topic === "node:changed" ? change.kind : ("reachable" as const)
      if (kind === "reachable" && fleet.get(node_id)?.usable !== true) return
      if (kind !== "connected" && kind !== "reachable" && kind !== "lost" && kind !== "given-up") return
      // The hub is unbounded, so it drops nothing and does not wait.
      PubSub.publishUnsafe(hub, { node_id, kind })
    }
  })
  const shared = yield* shareHeartbeats({
    others: !isSingle,
    every: Duration.millis(
      isSingle ? NOTED_MILLIS : Math.min(LOOK_MILLIS, Duration.toMillis(options.heartbeatTimeout) / LOOKS)
    ),
    // A single replica reads its own writes only.
    onHeartbeat: (id) => (isSingle ? undefined : detector?.record(id)),
    onRead: (millis) => detector?.advance(millis)
  })
  detector = yield* makeFailureDetector({ ...options, beats: (id) => shared.beats(id) })

  return {
    record: (id: NodeId, boot_id: string, usage: NodeUsage) => {
      detector?.record(id)
      shared.note(id, boot_id, usage)
    },
    refresh: (id: NodeId): Effect.Effect<void, Unavailable> => refresh([id]),
    changes: Stream.fromPubSub(hub)
  } as const
})
