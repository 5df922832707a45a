import { randomBytes } from "node:crypto"
import { Array as Arr, Context, Effect, Layer, Option } from "effect"
import { CurrentPrincipal } from "../api/Principal.ts"
import type { CreateRollout } from "../api/RolloutsGroup.ts"
import { lackingFor } from "../api/rights.ts"
import type { Selector } from "../api/selector.ts"
import { describeAudit } from "../domain/AuditedRequest.ts"
import { changesBetween } from "../domain/definitionChanges.ts"
import { Conflict, Forbidden, InvalidRequest, NotFound, Unavailable } from "../domain/errors.ts"
import { type ServerId, serverId } from "../domain/Id.ts"
import { nowText } from "../domain/nowText.ts"
import {
  isOver,
  type Rollout,
  type RolloutPlan,
  type RolloutRecord,
  type RolloutServer
} from "../domain/Rollout.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"
import { type RolloutPart, RolloutRepo } from "../store/repos/RolloutRepo.ts"
import { Store, Transaction } from "../store/Store.ts"
import { continued } from "./controllers/rolloutRules.ts"
import { rolloutRefusal } from "./records/callerLimits.ts"
import { makePlan, named, type Planned } from "./rolloutPlan.ts"
import { makeRolloutView } from "./rolloutView.ts"

const DEFAULT_PARALLEL = 2

/** A page of a list; `after`: the last id of the page before. */
export interface PageRequest {
  readonly limit: number
  readonly after?: string
}

const notAllowed = ({ id, state }: RolloutRecord) =>
  new Conflict({
    detail: `rollout is ${state}: ${id}`,
    hint: isOver(state) ? "Create another rollout." : "GET /api/rollouts/:rollout has its progress."
  })

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

/** Whether a server has its target already, and nothing of it is pending. */
const isUpToDate = ({ earlier, record, target }: Planned): boolean =>
  "revision" in target && target.revision === earlier.revision && record.redefinition?.used === undefined

/** Whether a rollout changes the memory limit of a server; its rollback raises a lowered one again. */
const changesMemory = ({ record: { definition }, target }: Planned): boolean =>
  "definition" in target &&
  (definition.limits.memory_limit ?? 0) !== (target.definition.limits.memory_limit ?? 0)

/** Whether a server is deleted when it ends, once a rollout has changed it. */
const losesSave = ({ record: { definition }, target }: Planned): boolean =>
  "definition" in target && definition.save && !target.definition.save

/** Creates and shows rollouts, and changes their state; the leader does the work (life.md, "Rollouts"). */
export class Rollouts extends Context.Service<
  Rollouts,
  {
    /**
     * Resolves the definition of each selected server and stores the rollout.
     *
     * @error NotFound       the selector names an unknown server
     * @error Forbidden      the key has a memory quota, and the rollout would change a memory limit; or a server would
     * no longer be saved, and the key may not delete servers
     * @error InvalidRequest no server matches, or one has no valid definition today
     * @error Conflict       a server is in another unfinished rollout
     */
    create(
      request: CreateRollout
    ): Effect.Effect<Rollout, NotFound | Forbidden | InvalidRequest | Conflict | Unavailable>
    /** Returns what {@link create} would change; `next`: the last server of a page that is not the last one. */
    plan(
      selector: Selector,
      page: PageRequest
    ): Effect.Effect<
      { readonly plan: RolloutPlan; readonly next: ServerId | undefined },
      NotFound | InvalidRequest
    >
    /** Returns rollouts, newest first; `next` as in {@link plan}. @error InvalidRequest `after` is no rollout */
    list(
      page: PageRequest
    ): Effect.Effect<
      { readonly rollouts: ReadonlyArray<Rollout>; readonly next: string | undefined },
      InvalidRequest | Unavailable
    >
    get(id: string): Effect.Effect<Rollout, NotFound | Unavailable>
    /** No further server begins. @error Conflict the rollout is over or rolls back */
    pause(id: string): Effect.Effect<Rollout, NotFound | Conflict | Unavailable>
    /** Continues a paused rollout; servers that failed are tried again, last. @error Conflict it is over */
    resume(id: string): Effect.Effect<Rollout, NotFound | Conflict | Unavailable>
    /** Ends a rollout; the servers keep the definitions that they have. @error Conflict it is over */
    abort(id: string): Effect.Effect<Rollout, NotFound | Conflict | Unavailable>
  }
>()("muster/servers/Rollouts") {
  static readonly layer = Layer.effect(
    Rollouts,
    Effect.gen(function* () {
      const plan = yield* makePlan
      const repo = yield* RolloutRepo
      const store = yield* Store
      const { creator, show } = yield* makeRolloutView

      /** @param own the key whose rollouts the caller sees; undefined: those of every key */
      const refuseBusy = Effect.fnUntraced(function* ({ servers }: RolloutPart, own: string | undefined) {
        const busy = yield* repo.busy(servers.map(({ server_id }) => server_id))
        if (busy.length === 0) return
        const isVisible = ({ created_by }: (typeof busy)[number]) => own === undefined || created_by === own
        const ids = [...new Set(busy.filter(isVisible).map(({ rollout_id }) => rollout_id))]
        const shown = busy.map((one) =>
          isVisible(one) ? `${one.server_id} (${one.rollout_id})` : one.server_id
        )
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
        (inserting, { id }) =>
          Effect.onError(inserting, () => Effect.ignore(store.write(repo.removeParts(id))))
      )

      const create = Effect.fn("Rollouts.create")(function* ({ selector, ...choices }: CreateRollout) {
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
        const id = serverId(randomBytes(16))
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
        return yield* store.read(show(rollout))
      })

      const planPage = Effect.fn("Rollouts.plan")(function* (
        selector: Selector,
        { after, limit }: PageRequest
      ) {
        const planned = yield* plan(selector)
        const changed = planned.filter((one) => !isUpToDate(one))
        const place = after === undefined ? -1 : changed.findIndex(({ record }) => record.id === after)
        if (after !== undefined && place === -1) {
          return yield* new InvalidRequest({
            detail: `query field after: no server of the plan has this id: ${after}`,
            hint: "Begin with the first page again: leave `after` out."
          })
        }
        const page = changed.slice(place + 1, place + 1 + limit)
        return {
          plan: {
            total: planned.length,
            up_to_date: planned.length - changed.length,
            servers: page.map(({ record, target }) => ({
              server_id: record.id,
              ...("problem" in target
                ? { changes: [], problem: target.problem }
                : {
                    changes: changesBetween(record.redefinition?.used ?? record.definition, target.definition)
                  })
            }))
          },
          next: place + 1 + limit < changed.length ? page.at(-1)?.record.id : undefined
        }
      })

      const list = Effect.fn("Rollouts.list")(function* ({ limit, ...page }: PageRequest) {
        const created_by = yield* creator
        const found = yield* store.read(
          repo.list({ limit: limit + 1, ...page, ...(created_by === undefined ? {} : { created_by }) })
        )
        if (found === undefined) {
          return yield* new InvalidRequest({
            detail: `query field after: no rollout has this id: ${page.after}`,
            hint: "Begin with the first page again: leave `after` out."
          })
        }
        const records = found.slice(0, limit)
        return {
          rollouts: yield* store.read(Effect.forEach(records, show)),
          next: found.length > limit ? records.at(-1)?.id : undefined
        }
      })

      /** Finds a rollout; `created_by`: only one of this key. */
      const find = Effect.fnUntraced(function* (id: string, created_by: string | undefined) {
        const record = Option.getOrUndefined(yield* repo.find(id))
        const isOther = created_by !== undefined && record?.created_by !== created_by
        return record === undefined || isOther ? yield* NotFound.rollout(id) : record
      })

      const get = Effect.fn("Rollouts.get")(function* (id: string) {
        const record = yield* store.read(find(id, yield* creator))
        return yield* store.read(show(record))
      })

      /** Changes the state of a rollout; `by` returns the same record if it has this state. */
      const change = Effect.fnUntraced(function* (
        id: string,
        by: (record: RolloutRecord, now: string) => RolloutRecord | Conflict
      ) {
        const now = yield* nowText
        const created_by = yield* creator
        const change = Effect.gen(function* () {
          const before = yield* find(id, created_by)
          const after = by(before, now)
          if (after instanceof Conflict) return yield* after
          if (after === before) return undefined
          if (before.state === "paused" && !isOver(after.state)) yield* repo.retryFailed(id)
          if (!isOver(after.state)) yield* repo.save(after)
          else yield* repo.finish(after, yield* repo.counts(id))
          const { append } = yield* Transaction
          yield* append({ topic: "rollout:changed", rollout_id: id })
          return after.state
        })
        const state = yield* store.write(change)
        if (state !== undefined)
          yield* Effect.annotateLogs(Effect.logInfo(`a caller has changed the rollout: ${state}`), {
            rollout_id: id
          })
        return yield* get(id)
      })

      return Rollouts.of({
        create,
        plan: planPage,
        list,
        get,
        pause: Effect.fn("Rollouts.pause")((id: string) =>
          change(id, (record) => {
            if (record.state === "paused") return record
            if (isOver(record.state) || record.rolling_back) return notAllowed(record)
            return { ...record, state: "paused", reason: "a caller has paused it" }
          })
        ),
        resume: Effect.fn("Rollouts.resume")((id: string) =>
          change(id, (record) => {
            if (isOver(record.state)) return notAllowed(record)
            return record.state === "paused" ? continued(record) : record
          })
        ),
        abort: Effect.fn("Rollouts.abort")((id: string) =>
          change(id, (record, now) => {
            if (record.state === "aborted") return record
            return isOver(record.state)
              ? notAllowed(record)
              : { ...record, state: "aborted", finished_at: now }
          })
        )
      })
    })
  )
}
