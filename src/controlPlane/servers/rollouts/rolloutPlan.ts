/** The definitions that a rollout gives to its servers, resolved when it is created (spec 3.13). */

import { Effect } from "effect"
import { revisionOf } from "../../../contract/domain/compareDefinitions.ts"
import {
  type Forbidden,
  InvalidRequest,
  NotFound,
  named,
  type Unavailable
} from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { admits } from "../../../contract/domain/Key.ts"
import { isOver, type Rollout, type RolloutRecord } from "../../../contract/domain/Rollout.ts"
import type { Selector } from "../../../contract/domain/Selector.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { inSlices, pause } from "../../../shared/work/slices.ts"
import { BlueprintStore } from "../../blueprints/BlueprintStore.ts"
import { CurrentPrincipal, currentRestriction } from "../../http/Principal.ts"
import { RolloutRepo } from "../../store/repos/RolloutRepo.ts"
import { filterOf } from "../list/listQuery.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeOverridesCheck } from "../state/callerLimits.ts"

/** The rollouts that a caller sees. A key with limited servers sees the rollouts that it has created. */
export const makeRolloutView = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* RolloutRepo

  return {
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

/** Servers of one rollout, whose definitions are in memory during its creation. */
const MOST_SERVERS = 10_000

export interface Revised {
  readonly definition: ServerDefinition
  readonly revision: string
}

/** A server of a rollout. `target` is a problem if blueprint and overrides do not resolve. */
export interface Planned {
  readonly record: ServerRecord
  readonly earlier: Revised
  readonly target: Revised | { readonly problem: string }
}

/** Whether a server has its target already, and nothing of it is pending. */
export const isUpToDate = ({ earlier, record, target }: Planned): boolean =>
  "revision" in target && target.revision === earlier.revision && record.redefinition?.used === undefined

const revised = (definition: ServerDefinition): Revised => ({ definition, revision: revisionOf(definition) })

export const makePlan = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  const index = yield* ServerIndex
  const checkOverrides = yield* makeOverridesCheck

  const selected = Effect.fnUntraced(function* (selector: Selector) {
    const within = yield* currentRestriction
    const filter = yield* filterOf(selector)
    const page = yield* index.select({ filter: { ...filter, within } })
    const ids = page?.ids ?? []
    if (ids.length > MOST_SERVERS) {
      return yield* new InvalidRequest({
        detail: `the selector matches ${ids.length} servers: a rollout has at most ${MOST_SERVERS}`,
        hint: "Narrow the selector, for example by labels or a node, and create a rollout for each part."
      })
    }
    const records = new Map<ServerId, ServerRecord>()
    yield* inSlices(function* () {
      for (const id of [...ids, ...(selector.ids ?? [])]) {
        const record = index.get(id)
        if (record !== undefined && admits(within, record)) records.set(id, record)
        yield
      }
    })
    const unknown = (selector.ids ?? []).filter((id) => !records.has(id))
    if (unknown.length > 0) return yield* NotFound.server(named(unknown))
    if (ids.length === 0) {
      return yield* new InvalidRequest({
        detail: "no server matches the selector",
        hint: "GET /api/servers accepts the same conditions and lists what matches."
      })
    }
    return ids.flatMap((id) => records.get(id) ?? [])
  })

  return Effect.fnUntraced(function* (
    selector: Selector
  ): Effect.fn.Return<ReadonlyArray<Planned>, Forbidden | InvalidRequest | NotFound | Unavailable> {
    const planned: Array<Planned> = []
    for (const record of yield* selected(selector)) {
      const { blueprint_id, overrides = {} } = record
      const target: Planned["target"] = yield* Effect.match(blueprints.resolve(blueprint_id, overrides), {
        onFailure: ({ detail }) => ({ problem: detail }),
        onSuccess: revised
      })
      if ("definition" in target) {
        const next = target.definition
        yield* checkOverrides({ right: "change", blueprint_id, given: overrides, next, before: record })
      }
      planned.push({ record, earlier: revised(record.definition), target })
      yield* pause
    }
    return planned
  })
})
