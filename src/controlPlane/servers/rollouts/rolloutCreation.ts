import { Array as Arr, Effect } from "effect"
import type { CreateRollout } from "../../../contract/api/BlueprintsGroup.ts"
import { describeAudit } from "../../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest, named, Unavailable } from "../../../contract/domain/errors.ts"
import { serverId } from "../../../contract/domain/Id.ts"
import { idBytes } from "../../../contract/domain/idBytes.ts"
import type { Quota } from "../../../contract/domain/Key.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import {
  MOST_PARALLEL,
  MOST_RECORDED,
  type RolloutRecord,
  type RolloutServer
} from "../../../contract/domain/Rollout.ts"
import type { Selector } from "../../../contract/domain/Selector.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { inSlices } from "../../../shared/work/slices.ts"
import { CurrentPrincipal, checkNotice, currentCreator, requireRight } from "../../http/Principal.ts"
import { type RolloutPart, RolloutRepo } from "../../store/repos/RolloutRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { changes, overQuota, resources } from "../state/quotaRules.ts"
import { isUpToDate, makePlan, type Planned, type Revised } from "./rolloutPlan.ts"

const DEFAULT_PARALLEL = 2

/** Rows of one write of a creation, so that other writes come between. */
const ROWS_AT_ONCE = 200

const partsOf = (whole: RolloutPart): ReadonlyArray<RolloutPart> => {
  const { definitions, rollout_id, servers } = whole
  if (servers.length + definitions.length <= ROWS_AT_ONCE) return [whole]
  return [
    ...Arr.chunksOf(definitions, ROWS_AT_ONCE).map((some) => ({
      rollout_id,
      definitions: some,
      servers: []
    })),
    ...Arr.chunksOf(servers, ROWS_AT_ONCE).map((some) => ({ rollout_id, definitions: [], servers: some }))
  ]
}

/** 503: another leader removed the rows, as if this process had died. */
const partsRemoved = new Unavailable({
  detail: "the leader changed during the creation of the rollout",
  hint: "Nothing was changed; send the request again."
})

const problemsOf = (planned: ReadonlyArray<Planned>) =>
  planned.flatMap(({ record, target }) => ("problem" in target ? [`${record.id}: ${target.problem}`] : []))

type Changed = Planned & { readonly target: Revised }

const isChanged = (planned: Planned): planned is Changed =>
  "definition" in planned.target && !isUpToDate(planned)

/** Refuses a rollout that changes limits under a quota, because its rollback would raise lowered ones. */
const checkRollout = (quota: Quota, planned: ReadonlyArray<Planned>) => {
  for (const resource of resources) {
    const ids = planned.flatMap(({ record, target }) =>
      "definition" in target && changes(quota, resource, record.definition.limits, target.definition.limits)
        ? [record.id]
        : []
    )
    if (ids.length > 0)
      return overQuota(quota, `a rollout cannot change ${resource.noun} limits, as of ${named(ids)}`)
  }
  return Effect.void
}

/** Whether a server becomes unsaved by the rollout, and is deleted at its end. */
const losesSave = ({ record: { definition }, target }: Planned): boolean =>
  "definition" in target && definition.save && !target.definition.save

/** Returns how many servers change at a time. A percentage is of the changing servers. */
const parallelOf = (given: number | string, changing: number): number =>
  typeof given === "number"
    ? given
    : Math.min(MOST_PARALLEL, Math.max(1, Math.floor((changing * Number.parseInt(given, 10)) / 100)))

const revisionsOf = Effect.fnUntraced(function* (changed: ReadonlyArray<Changed>) {
  const counts = new Map<string, { readonly one: Changed; servers: number }>()
  yield* inSlices(function* () {
    for (const one of changed) {
      const { earlier, record, target } = one
      const key = `${record.blueprint_id} ${earlier.revision} ${target.revision}`
      const known = counts.get(key)
      if (known === undefined) counts.set(key, { one, servers: 1 })
      else known.servers += 1
      yield
    }
  })
  const viewOf = ({ definition: { version }, revision }: Revised) => ({ revision, version })
  return Array.from(counts.values(), ({ one: { earlier, record, target }, servers }) => ({
    blueprint_id: record.blueprint_id,
    servers,
    from: viewOf(earlier),
    to: viewOf(target)
  }))
    .sort((one, other) => other.servers - one.servers)
    .slice(0, MOST_RECORDED)
})

const recorded = ({ ids, ...selector }: Selector): Selector => ({
  ...selector,
  ...(ids === undefined ? {} : { ids: ids.slice(0, MOST_RECORDED) })
})

export const makeCreateRollout = Effect.gen(function* () {
  const plan = yield* makePlan
  const repo = yield* RolloutRepo
  const store = yield* Store

  /** @param own the key whose rollouts the caller sees, or nothing for every key's */
  const refuseBusy = Effect.fnUntraced(function* ({ servers }: RolloutPart, own: string | undefined) {
    const busy = yield* repo.busy(servers.map(({ server_id }) => server_id))
    if (busy.length === 0) return
    const isVisible = ({ created_by }: (typeof busy)[number]) => own === undefined || created_by === own
    const ids = [...new Set(busy.filter(isVisible).map(({ rollout_id }) => rollout_id))]
    const shown = busy.map((one) => (isVisible(one) ? `${one.server_id} (${one.rollout_id})` : one.server_id))
    return yield* new Conflict({
      detail: `servers are in an unfinished rollout: ${named(shown)}`,
      hint:
        ids.length === 0
          ? "Wait for the rollout of another key, or ask an administrator to abort it."
          : `Wait for ${named(ids)}, or abort it: POST /api/rollouts/:rollout/abort.`
    })
  })

  /** Stores a rollout in several writes. The last one makes it exist. */
  const insert = Effect.fnUntraced(
    function* (rollout: RolloutRecord, whole: RolloutPart) {
      const { definitions, servers } = whole
      const own = yield* currentCreator
      yield* store.read(refuseBusy(whole, own))
      const [last = whole, ...earlier] = partsOf(whole).toReversed()
      for (const part of earlier) yield* store.write(repo.addPart(part))
      const begin = Effect.gen(function* () {
        yield* refuseBusy(whole, own)
        yield* repo.addPart(last)
        const rows = { servers: servers.length, definitions: definitions.length }
        if (!(yield* repo.insert(rollout, rows))) return yield* partsRemoved
        yield* append({ topic: "rollout:changed", rollout_id: rollout.id })
      })
      yield* store.write(begin)
    },
    (inserting, { id }) => Effect.onError(inserting, () => Effect.ignore(store.write(repo.removeParts(id))))
  )

  return Effect.fnUntraced(function* ({ selector, ...choices }: CreateRollout) {
    yield* checkNotice(choices)
    if (choices.notify !== undefined && choices.restart === "when_stopped") {
      return yield* new InvalidRequest({
        detail: "body field notify: a rollout with restart when_stopped restarts no server",
        hint: "Leave notify out, or send restart with now."
      })
    }
    const planned = yield* plan(selector)
    const problems = problemsOf(planned)
    if (problems.length > 0) {
      return yield* new InvalidRequest({
        detail: `servers have no valid definition: ${named(problems)}`,
        hint: "Correct the blueprint, the software or the overrides, or leave these servers out."
      })
    }
    const caller = yield* CurrentPrincipal
    for (const quota of caller?.quotas ?? []) yield* checkRollout(quota, planned)
    const unsaved = planned.filter(losesSave).map(({ record }) => record.id)
    if (unsaved.length > 0) {
      const why = `: without \`save\`, these servers are deleted when they end: ${named(unsaved)}`
      yield* requireRight("delete", why)
    }
    const id = serverId(idBytes(16))
    yield* describeAudit({ id })
    const now = yield* nowText
    const definitions = new Map<string, ServerDefinition>()
    const changed = planned.filter(isChanged)
    const servers: Array<RolloutServer> = []
    yield* inSlices(function* () {
      for (const [position, { earlier, record, target }] of changed.entries()) {
        for (const { definition, revision } of [earlier, target]) definitions.set(revision, definition)
        servers.push({
          rollout_id: id,
          server_id: record.id,
          position,
          phase: "queued",
          attempt: 0,
          target: target.revision,
          earlier: earlier.revision,
          was_up: null,
          stopped: false,
          notified_at: null,
          restarted_at: null,
          crash_before: null,
          reason: null
        })
        yield
      }
    })
    const revisions = yield* revisionsOf(changed)
    const { canary, max_parallel = DEFAULT_PARALLEL, on_failure = "pause", restart = "now" } = choices
    const rollout: RolloutRecord = {
      id,
      state: servers.length === 0 ? "done" : "planned",
      settings: {
        ...choices,
        max_parallel: parallelOf(max_parallel, servers.length),
        restart,
        on_failure
      },
      total: planned.length,
      done: planned.length - servers.length,
      rolled_back: 0,
      canary_left: canary ?? 0,
      rolling_back: false,
      reason: null,
      created_at: now,
      finished_at: servers.length === 0 ? now : null,
      created_by: caller?.key_id ?? null,
      origin: {
        selector: recorded(selector),
        ...(caller === undefined ? {} : { created_by: { key_id: caller.key_id, name: caller.name } }),
        revisions
      }
    }
    yield* insert(rollout, { rollout_id: id, servers, definitions: [...definitions] })
    yield* Effect.annotateLogs(
      Effect.logInfo(`rollout created: ${servers.length} of ${planned.length} servers change`),
      { rollout_id: id }
    )
    return rollout
  })
})
