import { Effect, Layer, Option, Schedule } from "effect"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import { serverOf } from "../../../contract/domain/Journal.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { isOver, type RolloutRecord } from "../../../contract/domain/Rollout.ts"
import { makeWorkQueue, type StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { RolloutRepo } from "../../store/repos/RolloutRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/sqlErrors.ts"
import { ServersOptions } from "../state/ServersOptions.ts"
import { advance } from "./rolloutRules.ts"
import { makeRolloutServers } from "./rolloutServers.ts"

const logState = ({ id, reason, state }: RolloutRecord) => {
  const text = reason === null || isOver(state) ? `rollout ${state}` : `rollout ${state}: ${reason}`
  const isBad = state === "paused" || state === "failed" || state === "rolled_back"
  return Effect.annotateLogs(Effect.logWithLevel(isBad ? "Warn" : "Info")(text), { rollout_id: id })
}

/**
 * Runs the rollouts on the leader (spec 3.13). One queue begins servers, the other works on them. The state is in the
 * database, and each step can be repeated.
 */
export const RolloutRunner = Layer.effectDiscard(
  Effect.gen(function* () {
    const leadership = yield* Leadership
    const repo = yield* RolloutRepo
    const store = yield* Store
    const { heldUpSince, step, waiting } = yield* makeRolloutServers

    const changing = yield* makeWorkQueue({
      name: "rollout of a server",
      fields: (server_id) => ({ server_id }),
      step,
      backoff: Schedule.spaced((yield* ServersOptions).rolloutPause),
      leadership,
      resume: Effect.suspend(() => {
        waiting.clear()
        heldUpSince.clear()
        return store.read(repo.underWay)
      })
    })

    const next = Effect.fnUntraced(function* (id: string) {
      const before = Option.getOrUndefined(yield* repo.find(id))
      if (before === undefined) return { changed: undefined, servers: [] }
      const counts = yield* repo.counts(id)
      const now = yield* nowText
      const { begins, rollout } = advance(before, counts, now)
      if (isOver(rollout.state) && rollout !== before) yield* repo.finish(rollout, counts)
      else if (rollout !== before) yield* repo.save(rollout)
      const changed = rollout.state === before.state ? undefined : rollout
      return { changed, servers: begins === 0 ? [] : yield* repo.begin(id, begins) }
    })

    const running = yield* makeWorkQueue({
      name: "rollout",
      fields: (rollout_id: string) => ({ rollout_id }),
      step: Effect.fnUntraced(function* (id: string): Effect.fn.Return<StepOutcome, Unavailable> {
        const { changed, servers } = yield* store.write(next(id))
        if (changed !== undefined) yield* logState(changed)
        for (const server of servers) changing.add(server)
        return "done"
      }),
      backoff: databaseRetrySchedule,
      leadership,
      resume: Effect.gen(function* () {
        // Of creations whose process has died.
        yield* store.write(repo.removeParts())
        return (yield* store.read(repo.unfinished)).map(({ id }) => id)
      })
    })

    yield* followChanges("controllers", (change) => {
      if (change.topic === "rollout:changed") running.add(change.rollout_id)
      const id = serverOf(change)
      if (id !== undefined && (changing.has(id) || waiting.has(id))) changing.add(id)
    })
  })
)
