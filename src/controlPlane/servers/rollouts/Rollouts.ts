import { Context, Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../../contract/api/ApplicationApi.ts"
import type { CreateRollout } from "../../../contract/api/BlueprintsGroup.ts"
import { withoutAudit } from "../../../contract/domain/AuditedRequest.ts"
import { changesBetween } from "../../../contract/domain/compareDefinitions.ts"
import { Conflict, NotFound } from "../../../contract/domain/errors.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { isOver, type RolloutRecord } from "../../../contract/domain/Rollout.ts"
import type { Selector } from "../../../contract/domain/Selector.ts"
import { handlersOf } from "../../../shared/net/requestServices.ts"
import { currentCreator } from "../../http/Principal.ts"
import { pageAfter, pageResponse } from "../../http/requestUrl.ts"
import { RolloutRepo } from "../../store/repos/RolloutRepo.ts"
import { append, Store } from "../../store/Store.ts"
import type { RowPage } from "../../store/sql/rows.ts"
import { unknownAfter, wantedPage } from "../list/listQuery.ts"
import { makeCreateRollout } from "./rolloutCreation.ts"
import { isUpToDate, makePlan, makeRolloutView } from "./rolloutPlan.ts"
import { continued } from "./rolloutRules.ts"

const notAllowed = ({ id, state }: RolloutRecord) =>
  new Conflict({
    detail: `rollout is ${state}: ${id}`,
    hint: isOver(state) ? "Create another rollout." : "GET /api/rollouts/:rollout has its progress."
  })

/** Creates and shows rollouts, and changes their state; the leader does the work (spec 3.13). */
export class Rollouts extends Context.Service<Rollouts>()("muster/servers/Rollouts", {
  make: Effect.gen(function* () {
    const plan = yield* makePlan
    const repo = yield* RolloutRepo
    const store = yield* Store
    const { show } = yield* makeRolloutView
    const createRollout = yield* makeCreateRollout

    const planPage = Effect.fn("Rollouts.plan")(function* (selector: Selector, { after, limit }: RowPage) {
      const planned = yield* plan(selector)
      const changed = planned.filter((one) => !isUpToDate(one))
      const place = after === undefined ? -1 : changed.findIndex(({ record }) => record.id === after)
      if (after !== undefined && place === -1) {
        return yield* unknownAfter("server of the plan", after)
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

    const list = Effect.fn("Rollouts.list")(function* (query: RowPage) {
      const created_by = yield* currentCreator
      const { next, records } = yield* wantedPage({ ...query, noun: "rollout" }, (page) =>
        store.read(repo.list({ ...page, created_by }))
      )
      return { rollouts: yield* store.read(Effect.forEach(records, show)), next }
    })

    /** Finds a rollout, only the key's own with `created_by`. */
    const find = Effect.fnUntraced(function* (id: string, created_by: string | undefined) {
      const record = yield* repo.find(id)
      const isOther = created_by !== undefined && record?.created_by !== created_by
      return record === undefined || isOther ? yield* NotFound.rollout(id) : record
    })

    const get = Effect.fn("Rollouts.get")(function* (id: string) {
      const record = yield* store.read(find(id, yield* currentCreator))
      return yield* store.read(show(record))
    })

    /** Changes the state of a rollout, unless `by` returns the same record. */
    const change = Effect.fnUntraced(function* (
      id: string,
      by: (record: RolloutRecord, now: string) => RolloutRecord | Conflict
    ) {
      const now = yield* nowText
      const created_by = yield* currentCreator
      const change = Effect.gen(function* () {
        const before = yield* find(id, created_by)
        const after = by(before, now)
        if (after instanceof Conflict) return yield* after
        if (after === before) return undefined
        if (before.state === "paused" && !isOver(after.state)) yield* repo.retryFailed(id)
        if (!isOver(after.state)) yield* repo.save(after)
        else yield* repo.finish(after, yield* repo.counts(id))
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

    return {
      /**
       * Resolves the definition of each selected server and stores the rollout.
       * @error NotFound       the selector names an unknown server
       * @error Forbidden      a memory limit changes despite a quota, an unsaved server needs the right to delete, or
       * the key may not give a server's overrides
       * @error InvalidRequest no server matches, or one has no valid definition today
       * @error Conflict       a server is in another unfinished rollout
       */
      create: Effect.fn("Rollouts.create")(function* (request: CreateRollout) {
        return yield* store.read(show(yield* createRollout(request)))
      }),
      /** Returns what {@link create} would change. `next` is the last server, unless the page is the last. */
      plan: planPage,
      /** Returns rollouts, newest first; `next` as in {@link plan}. @error InvalidRequest `after` is no rollout */
      list,
      get,
      /** No further server begins. @error Conflict the rollout is over or rolls back */
      pause: Effect.fn("Rollouts.pause")((id: string) =>
        change(id, (record) => {
          if (record.state === "paused") return record
          if (isOver(record.state) || record.rolling_back) return notAllowed(record)
          return { ...record, state: "paused", reason: "a caller has paused it" }
        })
      ),
      /** Continues a paused rollout, with failed servers last. @error Conflict it is over */
      resume: Effect.fn("Rollouts.resume")((id: string) =>
        change(id, (record) => {
          if (isOver(record.state)) return notAllowed(record)
          return record.state === "paused" ? continued(record) : record
        })
      ),
      /** Ends a rollout. The servers keep their present definitions. @error Conflict it is over */
      abort: Effect.fn("Rollouts.abort")((id: string) =>
        change(id, (record, now) => {
          if (record.state === "aborted") return record
          return isOver(record.state) ? notAllowed(record) : { ...record, state: "aborted", finished_at: now }
        })
      )
    }
  })
}) {
  static readonly layer = Layer.effect(Rollouts, Rollouts.make)
}

/** Handlers of the routes of rollouts (spec 3.13). */
export const RolloutsHandlers = handlersOf(
  ApplicationApi,
  "rollouts",
  Effect.fn(function* (handlers) {
    const rollouts = yield* Rollouts
    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ payload, query, request }) {
        if (query.dry_run === true) {
          yield* withoutAudit
          const { next, plan } = yield* rollouts.plan(payload.selector, pageAfter(query, 100))
          return pageResponse(request.url, plan, next)
        }
        const rollout = yield* rollouts.create(payload)
        const headers = { location: `/api/rollouts/${rollout.id}` }
        return HttpServerResponse.jsonUnsafe(rollout, { status: 201, headers })
      }),
      list: Effect.fnUntraced(function* ({ query, request }) {
        const page = yield* rollouts.list(pageAfter(query, 20))
        return pageResponse(request.url, page.rollouts, page.next)
      }),
      get: ({ params }) => rollouts.get(params.rollout),
      pause: ({ params }) => rollouts.pause(params.rollout),
      resume: ({ params }) => rollouts.resume(params.rollout),
      abort: ({ params }) => rollouts.abort(params.rollout)
    })
  })
)
