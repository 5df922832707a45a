import { Effect, Latch, Layer, Option } from "effect"
import type { ServerId } from "../../domain/Id.ts"
import { hasExpired } from "../../domain/Server.ts"
import { ExpiryClock } from "../../store/journal/ExpiryClock.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { backoff } from "../../work/backoff.ts"
import { makeWorkQueue, type StepOutcome } from "../../work/WorkQueue.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import type { NodeCallError } from "../records/nodeErrors.ts"
import { makeRemove } from "../records/removal.ts"

/** The longest sleep between two looks at the clock, which may jump or be held, in ms. */
const LONGEST_SLEEP = 10_000

/**
 * Deletes expired servers, on the leader (life.md, "Creation"): as `DELETE ...?force=true`, so that a node that is away
 * deletes its files once it is back.
 */
export const ServerExpiry = Layer.effectDiscard(
  Effect.gen(function* () {
    const clock = yield* ExpiryClock
    const index = yield* ServerIndex
    const journal = yield* Journal
    const leadership = yield* Leadership
    const remove = yield* makeRemove
    const changed = yield* Latch.make(false)

    const queue = yield* makeWorkQueue({
      name: "expiry",
      fields: (server_id: ServerId) => ({ server_id }),
      step: Effect.fnUntraced(function* (id: ServerId): Effect.fn.Return<StepOutcome, NodeCallError> {
        const record = Option.getOrUndefined(yield* index.find(id))
        const now = yield* clock.millis
        if (record === undefined || !hasExpired(record, now)) return "done"
        yield* Effect.annotateLogs(Effect.logInfo("server expired"), { server_id: id })
        yield* Effect.catchTag(
          remove(id, { force: true, onlyIf: (row) => hasExpired(row, now) }),
          "NotFound",
          () => Effect.void
        )
        return "done"
      }),
      backoff: backoff({ first: "1 second", longest: "1 minute" }),
      leadership
    })
    yield* journal.follow("controllers", (entries) =>
      Effect.forEach(
        entries,
        ({ change }) =>
          change.topic === "server:created" || change.topic === "server:changed"
            ? Effect.map(index.find(change.server_id), (found) => {
                if (Option.isSome(found) && found.value.expires_at !== undefined) changed.openUnsafe()
              })
            : Effect.void,
        { discard: true }
      )
    )
    const expire = Effect.gen(function* () {
      changed.closeUnsafe()
      const now = yield* clock.millis
      let sleep = LONGEST_SLEEP
      for (const { expires_at, id } of yield* index.records) {
        if (expires_at === undefined) continue
        const left = Date.parse(expires_at) - now
        if (left <= 0) queue.add(id)
        else sleep = Math.min(sleep, left)
      }
      yield* Effect.raceFirst(changed.await, Effect.sleep(sleep))
    })
    yield* leadership.whileLeader(Effect.forever(expire))
  })
)
