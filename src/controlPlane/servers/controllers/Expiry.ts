import { Clock, Effect, Latch, Layer } from "effect"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { hasExpired } from "../../../contract/domain/Server.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { inSlices } from "../../../shared/work/slices.ts"
import { makeWorkQueue, type StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
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
