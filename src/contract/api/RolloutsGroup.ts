import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { drainOptions, NOTIFY_SECONDS } from "../domain/Drain.ts"
import { Conflict, InvalidRequest, NotFound } from "../domain/errors.ts"
import { describedAs, optionalInputs } from "../domain/optionalInput.ts"
import { MOST_PARALLEL, OnFailure, Percentage, Restarting, Rollout, RolloutPlan } from "../domain/Rollout.ts"
import { Selector } from "../domain/Selector.ts"
import { Authorization, route } from "./middleware.ts"
import { flag, numberBetween, text } from "./query.ts"

const params = { rollout: Schema.String.annotate({ description: "The id of the rollout." }) }
const whole = (minimum: number, maximum: number, description: string) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum })).annotate({ description })

/** Body of `POST /api/rollouts` (spec 3.13). */
export const CreateRollout = Schema.Struct({
  selector: Selector,
  ...optionalInputs({
    max_parallel: Schema.Union([
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MOST_PARALLEL })),
      Percentage
    ]).annotate({
      description: `Servers that are changed at a time, 1 to ${MOST_PARALLEL}, or a percentage such as \`"25%"\` of the servers that change: rounded down, from 1 to ${MOST_PARALLEL}; default 2.`,
      // Languages without unions write the number.
      ...describedAs({ type: "integer", minimum: 1, maximum: MOST_PARALLEL })
    }),
    canary: whole(1, 10_000, "The rollout pauses after this many servers, until it is resumed."),
    restart: Restarting.annotate({
      description:
        "`now`, the default: servers that are up are restarted. `when_stopped`: they get the definition at their next start."
    }),
    on_failure: OnFailure.annotate({
      description:
        "After a server has failed: `pause`, the default; `continue` with the others; `rollback`: all servers that were changed get their earlier definitions back."
    }),
    start_timeout: whole(
      1,
      3600,
      "Seconds until a restarted server must be running; default: the start timeout of its software."
    ),
    notify: drainOptions.notify.annotate({
      description: "With `restart: now`: a line for the console of each running server before its restart."
    }),
    notify_seconds: drainOptions.notify_seconds.annotate({
      description: `Seconds between the line and the restart; default ${NOTIFY_SECONDS}.`
    })
  })
}).annotate({ identifier: "CreateRollout" })
export type CreateRollout = typeof CreateRollout.Type

const change = (name: "pause" | "resume" | "abort", what: string) =>
  HttpApiEndpoint.post(name, `/rollouts/:rollout/${name}`, {
    params,
    success: Rollout,
    error: [NotFound, Conflict]
  }).annotateMerge(route(what, { right: "change", audited: `rollout.${name}` }))

/** Rollouts (spec 3.13). */
export class RolloutsGroup extends HttpApiGroup.make("rollouts")
  .add(
    HttpApiEndpoint.post("create", "/rollouts", {
      query: {
        dry_run: flag("`true`: returns the plan, and nothing is changed; default `false`."),
        limit: numberBetween(1, 1000, "Of a plan: at most this many servers; default 100."),
        after: text("Of a plan: only servers after the one with this id.")
      },
      payload: CreateRollout.annotate({
        examples: [{ selector: { blueprint_id: "survival" }, max_parallel: 5, on_failure: "rollback" }]
      }),
      success: [Rollout.pipe(HttpApiSchema.status(201)), RolloutPlan],
      error: [NotFound, Conflict, InvalidRequest]
    }).annotateMerge(
      route("Give today's definition to all selected servers; dry_run=true: show the changes", {
        right: "change",
        audited: "rollout.create"
      })
    ),
    HttpApiEndpoint.get("list", "/rollouts", {
      query: {
        limit: numberBetween(1, 100, "At most this many rollouts; default 20."),
        after: text("Only rollouts that are older than the one with this id.")
      },
      success: Schema.Array(Rollout),
      error: InvalidRequest
    }).annotateMerge(route("Rollouts, newest first", { right: "read" })),
    HttpApiEndpoint.get("get", "/rollouts/:rollout", {
      params,
      success: Rollout,
      error: NotFound
    }).annotateMerge(route("Progress of a rollout", { right: "read" })),
    change("pause", "Change no further server until the rollout is resumed"),
    change("resume", "Continue a paused rollout; servers that failed are tried again at the end"),
    change("abort", "End a rollout; the servers keep the definitions that they have")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Rollouts" })) {}
