import { Effect } from "effect"
import { CurrentPrincipal } from "../api/Principal.ts"
import { admits } from "../domain/KeyLimits.ts"
import { isOver, type Rollout, type RolloutRecord } from "../domain/Rollout.ts"
import { RolloutRepo } from "../store/repos/RolloutRepo.ts"
import { ServerIndex } from "./index/ServerIndex.ts"

/** The view of rollouts that a caller gets. A key that is limited to some servers sees the rollouts that it has created. */
export const makeRolloutView = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* RolloutRepo

  return {
    /** The key whose rollouts the caller sees; undefined: those of every key. */
    creator: Effect.map(CurrentPrincipal, (caller) =>
      caller?.restriction === undefined ? undefined : caller.key_id
    ),
    show: Effect.fnUntraced(function* (record: RolloutRecord) {
      const { created_at, done, finished_at, id, origin, reason, rolling_back, settings, state, total } =
        record
      const counts = yield* repo.counts(id)
      const failures = yield* repo.failures(id)
      const within = (yield* CurrentPrincipal)?.restriction
      const isForward = !rolling_back && !isOver(state)
      const back = isOver(state) ? record.rolled_back : counts.done
      return {
        id,
        state,
        ...(reason === null ? {} : { reason }),
        ...settings,
        ...origin,
        total,
        done: isForward ? done + counts.done : done,
        under_way: counts.changing,
        waiting: counts.waiting,
        ...(rolling_back ? { rolled_back: back } : {}),
        // The servers may have left the limits of the key since.
        failed: failures.first.filter(({ server_id }) => {
          const server = index.factsOf(server_id)
          return server === undefined || admits(within, server)
        }),
        failed_total: failures.total,
        created_at,
        ...(finished_at === null ? {} : { finished_at })
      } satisfies Rollout
    })
  } as const
})
