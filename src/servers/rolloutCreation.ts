import { Array as Arr, Effect } from "effect"
import { CurrentPrincipal } from "../api/Principal.ts"
import type { CreateRollout } from "../api/RolloutsGroup.ts"
import { lackingFor } from "../api/rights.ts"
import { describeAudit } from "../domain/AuditedRequest.ts"
import { Conflict, Forbidden, InvalidRequest, Unavailable } from "../domain/errors.ts"
import { serverId } from "../domain/Id.ts"
import { idBytes } from "../domain/idBytes.ts"
import { nowText } from "../domain/nowText.ts"
import type { RolloutRecord, RolloutServer } from "../domain/Rollout.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"
import { type RolloutPart, RolloutRepo } from "../store/repos/RolloutRepo.ts"
import { Store, Transaction } from "../store/Store.ts"
import { rolloutRefusal } from "./records/callerLimits.ts"
import { isUpToDate, makePlan, named, type Planned } from "./rolloutPlan.ts"
import { makeRolloutView } from "./rolloutView.ts"

const DEFAULT_PARALLEL = 2

/** Rows of one write of a creation: other writes come between. */
const ROWS_AT_ONCE = 200

/** Divides the rows of a rollout into writes. */
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

/** 503: another leader took the rows of the creation for those of a process that has died. */
const partsRemoved = new Unavailable({
  detail: "the leader changed during the creation of the rollout",
  hint: "Nothing was changed; send the request again."
})

const problemsOf = (planned: ReadonlyArray<Planned>) =>
  planned.flatMap(({ record, target }) => ("problem" in target ? [`${record.id}: ${target.problem}`] : []))

/** Whether a rollout changes the memory limit of a server; its rollback raises a lowered one again. */
const changesMemory = ({ record: { definition }, target }: Planned): boolean =>
  "definition" in target &&
  (definition.limits.memory_limit ?? 0) !== (target.definition.limits.memory_limit ?? 0)

/** Whether a server is deleted when it ends, once a rollout has changed it. */
const losesSave = ({ record: { definition }, target }: Planned): boolean =>
  "definition" in target && definition.save && !target.definition.save

/** Returns the function that resolves the definitions of a new rollout and stores it (`Rollouts.create`). */
export const makeCreateRollout = Effect.gen(function* () {
  const plan = yield* makePlan
  const repo = yield* RolloutRepo
  const store = yield* Store
  const { creator } = yield* makeRolloutView

  /** @param own the key whose rollouts the caller sees; undefined: those of every key */
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

  /** Stores a rollout in several writes, of which the last one makes it exist. */
  const insert = Effect.fnUntraced(
    function* (rollout: RolloutRecord, whole: RolloutPart) {
      const { definitions, servers } = whole
      const own = yield* creator
      yield* store.read(refuseBusy(whole, own))
      const [last = whole, ...earlier] = partsOf(whole).toReversed()
      for (const part of earlier) yield* store.write(repo.addPart(part))
      const begin = Effect.gen(function* () {
        yield* refuseBusy(whole, own)
        yield* repo.addPart(last)
        const rows = { servers: servers.length, definitions: definitions.length }
        if (!(yield* repo.insert(rollout, rows))) return yield* partsRemoved
        const { append } = yield* Transaction
        yield* append({ topic: "rollout:changed", rollout_id: rollout.id })
      })
      yield* store.write(begin)
    },
    (inserting, { id }) => Effect.onError(inserting, () => Effect.ignore(store.write(repo.removeParts(id))))
  )

  return Effect.fnUntraced(function* ({ selector, ...choices }: CreateRollout) {
    const planned = yield* plan(selector)
    const problems = problemsOf(planned)
    if (problems.length > 0) {
      return yield* new InvalidRequest({
        detail: `servers have no valid definition: ${named(problems)}`,
        hint: "Correct the blueprint, the software or the overrides, or leave these servers out."
      })
    }
    const caller = yield* CurrentPrincipal
    const changed = caller?.quota?.max_memory === undefined ? [] : planned.filter(changesMemory)
    if (changed.length > 0) return yield* rolloutRefusal(changed.map(({ record }) => record.id))
    const lacking = yield* lackingFor("delete")
    const unsaved = planned.filter(losesSave)
    if (lacking !== undefined && unsaved.length > 0) {
      const ids = named(unsaved.map(({ record }) => record.id))
      return yield* new Forbidden({
        detail: `the API key lacks${lacking}: without \`save\`, these servers are deleted when they end: ${ids}`
      })
    }
    const id = serverId(idBytes(16))
    yield* describeAudit({ id })
    const now = yield* nowText
    const definitions = new Map<string, ServerDefinition>()
    const servers: Array<RolloutServer> = []
    for (const one of planned) {
      if (isUpToDate(one) || "problem" in one.target) continue
      const { earlier, record, target } = one
      for (const { definition, revision } of [earlier, target]) definitions.set(revision, definition)
      servers.push({
        rollout_id: id,
        server_id: record.id,
        position: servers.length,
        phase: "queued",
        attempt: 0,
        target: target.revision,
        earlier: earlier.revision,
        was_up: null,
        stopped: false,
        restarted_at: null,
        crash_before: null,
        reason: null
      })
    }
    const { canary, max_parallel = DEFAULT_PARALLEL, on_failure = "pause", restart = "now" } = choices
    const rollout: RolloutRecord = {
      id,
      state: servers.length === 0 ? "done" : "planned",
      settings: {
        max_parallel,
        ...(canary === undefined ? {} : { canary }),
        restart,
        on_failure,
        ...(choices.start_timeout === undefined ? {} : { start_timeout: choices.start_timeout })
      },
      total: planned.length,
      done: planned.length - servers.length,
      rolled_back: 0,
      canary_left: canary ?? 0,
      rolling_back: false,
      reason: null,
      created_at: now,
      finished_at: servers.length === 0 ? now : null,
      created_by: caller?.key_id ?? null
    }
    yield* insert(rollout, { rollout_id: id, servers, definitions: [...definitions] })
    yield* Effect.annotateLogs(
      Effect.logInfo(`rollout created: ${servers.length} of ${planned.length} servers change`),
      { rollout_id: id }
    )
    return rollout
  })
})
