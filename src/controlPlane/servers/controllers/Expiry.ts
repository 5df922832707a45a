import { Clock, Effect, Latch, Layer } from "effect"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { hasExpired } from "../../../contract/domain/Server.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { inSlices } from "../../../shared/work/slices.ts"
import { makeWorkQueue, type StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { type KeptServer, KeptServerRepo } from "../../store/repos/DeletedServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { makePurge } from "../kept/KeptServers.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import type { NodeCallError } from "../state/nodeCalls.ts"
import { makeRemove } from "../state/removal.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"

/** Longest sleep between two looks at the clock, which may be set, in ms. */
const LONGEST_SLEEP = 10_000

const ANNOUNCED_BEFORE = 60_000

/**
 * Announces the expiry of servers and deletes expired ones on the leader (spec 3.3), with `force`, so that a node
 * that is away deletes the files later.
 */
export const ServerExpiry = Layer.effectDiscard(
  Effect.gen(function* () {
    const index = yield* ServerIndex
    const leadership = yield* Leadership
    const lifecycle = yield* ServerLifecycle
    const remove = yield* makeRemove
    let announced: ReadonlyMap<ServerId, string> = new Map()
    const changed = yield* Latch.make(false)

    const queue = yield* makeWorkQueue({
      name: "expiry",
      fields: (server_id: ServerId) => ({ server_id }),
      step: Effect.fnUntraced(function* (id: ServerId): Effect.fn.Return<StepOutcome, NodeCallError> {
        const record = index.get(id)
        const now = yield* Clock.currentTimeMillis
        if (record?.expires_at === undefined) return "done"
        if (!hasExpired(record, now)) {
          if (Date.parse(record.expires_at) - now > ANNOUNCED_BEFORE) return "done"
          yield* lifecycle.announceExpiry(record)
          announced = new Map(announced).set(id, record.expires_at)
          return "done"
        }
        yield* Effect.annotateLogs(Effect.logInfo("server expired"), { server_id: id })
        yield* Effect.catchTag(
          remove(id, { force: true, purge: true, onlyIf: (row) => hasExpired(row, now) }),
          "NotFound",
          () => Effect.void
        )
        return "done"
      }),
      backoff: backoff({ first: "1 second", longest: "1 minute" }),
      leadership
    })
    yield* followChanges("controllers", (change) => {
      if (change.topic !== "server:created" && change.topic !== "server:changed") return
      if (index.get(change.server_id)?.expires_at !== undefined) changed.openUnsafe()
    })
    const expire = Effect.gen(function* () {
      changed.closeUnsafe()
      const now = yield* Clock.currentTimeMillis
      let sleep = LONGEST_SLEEP
      const stillAnnounced = new Map<ServerId, string>()
      yield* inSlices(function* () {
        for (const { expires_at, id } of index.all()) {
          yield
          if (expires_at === undefined) continue
          const left = Date.parse(expires_at) - now
          const isAnnounced = announced.get(id) === expires_at
          if (isAnnounced) stillAnnounced.set(id, expires_at)
          if (left <= (isAnnounced ? 0 : ANNOUNCED_BEFORE)) queue.add(id)
          if (left > ANNOUNCED_BEFORE) sleep = Math.min(sleep, left - ANNOUNCED_BEFORE)
          else if (left > 0) sleep = Math.min(sleep, left)
        }
      })
      announced = stillAnnounced
      yield* Effect.raceFirst(changed.await, Effect.sleep(sleep))
    })
    yield* leadership.whileLeader(Effect.forever(expire))
  })
)

/** The pause between two looks at the clock, unless a server is placed before. */
const PAUSE = "10 seconds"
/** The pause after each look: those of a burst of deletions took a tenth of its CPU time. */
const SHORT_PAUSE = "250 millis"
/** Servers that one look purges for their time, and for their number. */
const AT_ONCE = 100
/** Servers of one creator that a node keeps: without a disk limit, nothing else bounds them. */
const MOST_KEPT = 200

/** Changes after which a node may need the disk of its kept servers, or keep too many. */
const TAKES_DISK: ReadonlySet<string> = new Set([
  "server:created",
  "server:changed",
  "server:placed",
  "deleted"
])

/**
 * Notes by node which keys have created the servers that took disk since the last look, and since the one before it: what
 * one look has read may be older than the note.
 */
const makeTakers = Effect.gen(function* () {
  const index = yield* ServerIndex
  let takers = new Map<NodeId, Set<string>>()
  let before: ReadonlyMap<NodeId, ReadonlySet<string>> = new Map()
  return {
    note: (id: ServerId) => {
      const { created_by, node_id } = index.get(id) ?? {}
      if (created_by === undefined || node_id === undefined) return
      takers.set(node_id, (takers.get(node_id) ?? new Set()).add(created_by))
    },
    of: (node_id: NodeId) => [takers, before].flatMap((noted) => noted.get(node_id) ?? []),
    ended: () => {
      before = takers
      takers = new Map()
    }
  }
})

/** Purges deleted servers on the leader: after their time, by their number, or if their node needs the disk (spec 3.19). */
export const KeptServerPurges = Layer.effectDiscard(
  Effect.gen(function* () {
    const balancer = yield* LoadBalancer
    const kept = yield* KeptServerRepo
    const leadership = yield* Leadership
    const purge = yield* makePurge
    const store = yield* Store
    const takers = yield* makeTakers
    const changed = yield* Latch.make(false)
    /** Nodes that needed disk at the last look, for no key that was known. */
    const short = new Set<NodeId>()
    yield* followChanges("controllers", (change) => {
      if (!("server_id" in change) || !TAKES_DISK.has(change.topic)) return
      takers.note(change.server_id)
      changed.openUnsafe()
    })

    const purgeFor = (reason: string) => (server: KeptServer) =>
      mayUseReserve(purge(server)).pipe(
        Effect.tap((purged) =>
          purged ? Effect.logInfo(`a deleted server is purged: ${reason}`) : Effect.void
        ),
        Effect.annotateLogs({ server_id: server.id, node_id: server.node_id })
      )

    const makeRoom = Effect.fnUntraced(function* (node_id: NodeId, used: number) {
      const creators = takers.of(node_id)
      let left = used - Math.max(0, yield* balancer.freeDisk(node_id))
      const wasShort = short.delete(node_id)
      // A placement reserves before its record says which key takes the disk.
      if (left > 0 && creators.length === 0 && !wasShort) {
        short.add(node_id)
        return
      }
      while (left > 0) {
        const oldest = yield* store.read(kept.oldestOn(node_id, creators))
        if (oldest === undefined) return
        yield* purgeFor("its node needs the disk")(oldest)
        left -= oldest.disk_bytes
      }
    })

    const look = Effect.gen(function* () {
      changed.closeUnsafe()
      const due = yield* store.read(kept.due(yield* Clock.currentTimeMillis, AT_ONCE))
      yield* Effect.forEach(due, purgeFor("its time is over"), { discard: true })
      const surplus = yield* store.read(kept.surplus(MOST_KEPT, AT_ONCE))
      yield* Effect.forEach(surplus, purgeFor("its creator has too many"), { discard: true })
      for (const { disk_bytes, node_id } of yield* store.read(kept.diskByNode)) {
        yield* makeRoom(node_id, disk_bytes)
      }
      takers.ended()
    }).pipe(Effect.catch(({ detail }) => Effect.logDebug(`deleted servers were not looked at: ${detail}`)))
    const wait = Effect.delay(Effect.raceFirst(changed.await, Effect.sleep(PAUSE)), SHORT_PAUSE)
    yield* leadership.whileLeader(Effect.forever(Effect.andThen(look, wait)))
  })
)
