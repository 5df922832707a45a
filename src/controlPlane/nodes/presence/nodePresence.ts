import { Clock, Duration, Effect, Latch, PubSub, Stream } from "effect"
import { DatabaseFull, type Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { NodeUsage } from "../../../contract/domain/Node.ts"
import { elapsedMillisOf } from "../../../shared/work/elapsed.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { Leadership } from "../../store/Leadership.ts"
import { type NodeRecord, NodeRepo, type ReceivedHeartbeat } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { appendNodeChanged, Fleet, followNodeChanges } from "../fleet/Fleet.ts"
import { makeFailureDetector } from "./Liveness.ts"

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

/** Longest time between two reads that counts, in intervals: a longer one was late or had failed. */
const COUNTED = 2

/**
 * Writes this replica's heartbeats in one statement at a time, and reads the others'. Heartbeats wait in memory
 * without a database.
 * @param options.others whether other replicas may receive heartbeats; without them an idle service does nothing
 * @param options.onHeartbeat called with each heartbeat of another replica
 * @param options.onRead called with the milliseconds in which any heartbeat would have been read
 */
const shareHeartbeats = Effect.fnUntraced(function* (options: {
  readonly others: boolean
  readonly every: Duration.Duration
  readonly onHeartbeat: (node_id: NodeId) => void
  readonly onRead: (millis: number) => void
}) {
  const fleet = yield* Fleet
  const repo = yield* NodeRepo
  const store = yield* Store
  const clock = yield* Clock.Clock
  const now = () => elapsedMillisOf(clock)
  const received = new Map<NodeId, Omit<ReceivedHeartbeat, "age"> & { readonly at: number }>()
  const beats = new Map<NodeId, number>()
  const due = Latch.makeUnsafe(options.others)
  const rest = Effect.sync(() => {
    if (!options.others && received.size === 0) due.closeUnsafe()
  })
  let readAt = now()

  const flush = Effect.gen(function* () {
    const taken = [...received.values()].filter(({ node_id }) => fleet.get(node_id)?.record !== undefined)
    if (taken.length === 0) return received.clear()
    yield* store.write(repo.recordHeartbeats(taken.map(({ at, ...rest }) => ({ ...rest, age: now() - at }))))
    for (const one of taken) if (received.get(one.node_id) === one) received.delete(one.node_id)
  })

  const read = Effect.gen(function* () {
    const rows = yield* store.read(repo.heartbeats)
    for (const row of rows) {
      if (beats.get(row.node_id) === row.beats) continue
      beats.set(row.node_id, row.beats)
      const node = fleet.get(row.node_id)
      if (node?.record?.boot_id !== row.boot_id) continue
      // A heartbeat of this replica since then is newer, and so may a deregistration be.
      if (!received.has(row.node_id)) {
        const at = Math.max(row.heard_at, Date.parse(node.last_seen_at ?? "") || 0)
        fleet.recordHeartbeat(node, new Date(at).toISOString(), row.usage)
      }
      options.onHeartbeat(row.node_id)
    }
    const since = now() - readAt
    readAt += since
    options.onRead(Math.min(since, COUNTED * Duration.toMillis(options.every)))
  })

  const retried = <A>(work: Effect.Effect<A, { readonly detail: string }>) =>
    Effect.catch(work, ({ detail }) => Effect.logDebug(`heartbeats wait: ${detail}`))
  yield* retried(read)
  yield* Effect.andThen(rest, due.await).pipe(
    Effect.andThen(Effect.sleep(options.every)),
    Effect.andThen(retried(flush)),
    Effect.andThen(retried(read)),
    Effect.catchDefect((defect) => Effect.logError("heartbeats were not shared", defect)),
    Effect.forever,
    Effect.forkScoped
  )

  return {
    note: (node_id: NodeId, boot_id: string, usage: NodeUsage): void => {
      received.set(node_id, { node_id, boot_id, usage, at: now() })
      due.openUnsafe()
    },
    /** The number of the last heartbeat that was read. Each replica's write changes it. */
    beats: (node_id: NodeId): number => beats.get(node_id) ?? 0
  }
})
