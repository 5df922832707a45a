/** Blueprints and software, and the rollouts that give them to servers. */
import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { BlueprintView, DefinitionWarning, MixinView, SourceView } from "../domain/Blueprint.ts"
import { drainOptions, NOTIFY_SECONDS } from "../domain/Drain.ts"
import { Conflict, NotFound, SourceFailed } from "../domain/errors.ts"
import { describedAs, optionalInputs } from "../domain/optionalInput.ts"
import { Paginated } from "../domain/Pagination.ts"
import { MOST_PARALLEL, OnFailure, Percentage, Restarting, Rollout, RolloutPlan } from "../domain/Rollout.ts"
import { Selector } from "../domain/Selector.ts"
import { Software } from "../domain/Software.ts"
import { get, post } from "./endpoint.ts"
import { blueprintExample } from "./examples.ts"
import { Authorization } from "./middleware.ts"
import { flag, numberBetween, text } from "./query.ts"

/** Blueprints, mixins, software and their reload (spec 4.1). */
export class BlueprintsGroup extends HttpApiGroup.make("blueprints")
  .add(
    get("list", "/blueprints", "List blueprints, paginated", {
      right: "read",
      hasQueryFallbacks: true,
      query: {
        page: text("Page, from 1 on; anything below or no number is 1."),
        limit: text(
          "Blueprints of a page, at most 1,000; default 50, and 20 for a value below 1 or not a number."
        ),
        per_page: text("The same as `limit`, which takes precedence."),
        meta: text("Reserved; changes nothing.")
      },
      success: Paginated("BlueprintPage", BlueprintView.annotate({ examples: [blueprintExample] }))
    }),
    post("reload", "/blueprints/reload", "Sync the sources of blueprints and reload them, all or nothing", {
      audited: "blueprints.reload",
      success: HttpApiSchema.Empty(200),
      errors: [SourceFailed]
    }),
    get("get", "/blueprints/:blueprint", "One blueprint", { right: "read", success: BlueprintView }),
    get("mixins", "/mixins", "List mixins", { right: "read", success: Schema.Array(MixinView) }),
    get("mixin", "/mixins/:mixin", "One mixin", { right: "read", success: MixinView }),
    get("softwareList", "/software", "List software", { right: "read", success: Schema.Array(Software) }),
    post("softwareReload", "/software/reload", "Sync the sources of software and reload it, all or nothing", {
      audited: "software.reload",
      success: HttpApiSchema.Empty(200),
      errors: [SourceFailed]
    }),
    get("software", "/software/:software", "One software definition", { right: "read", success: Software }),
    get(
      "warnings",
      "/definitions/warnings",
      "Warnings about the definitions, and definitions that were left out",
      { right: "read", success: Schema.Array(DefinitionWarning) }
    ),
    get(
      "sources",
      "/definitions/sources",
      "Git repositories that definitions are synced from, and the result of the last sync",
      { right: "read", success: Schema.Array(SourceView) }
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Blueprints and software" })) {}

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
  post(name, `/rollouts/:rollout/${name}`, what, {
    right: "change",
    audited: `rollout.${name}`,
    success: Rollout,
    errors: [Conflict]
  })

/** Rollouts (spec 3.13). */
export class RolloutsGroup extends HttpApiGroup.make("rollouts")
  .add(
    post(
      "create",
      "/rollouts",
      "Give today's definition to all selected servers; dry_run=true: show the changes",
      {
        right: "change",
        audited: "rollout.create",
        query: {
          dry_run: flag("`true`: returns the plan, and nothing is changed; default `false`."),
          limit: numberBetween(1, 1000, "Of a plan: at most this many servers; default 100."),
          after: text("Of a plan: only servers after the one with this id.")
        },
        payload: CreateRollout.annotate({
          examples: [{ selector: { blueprint_id: "survival" }, max_parallel: 5, on_failure: "rollback" }]
        }),
        success: [Rollout.pipe(HttpApiSchema.status(201)), RolloutPlan],
        errors: [NotFound, Conflict]
      }
    ),
    get("list", "/rollouts", "Rollouts, newest first", {
      right: "read",
      query: {
        limit: numberBetween(1, 100, "At most this many rollouts; default 20."),
        after: text("Only rollouts that are older than the one with this id.")
      },
      success: Schema.Array(Rollout)
    }),
    get("get", "/rollouts/:rollout", "Progress of a rollout", { right: "read", success: Rollout }),
    change("pause", "Change no further server until the rollout is resumed"),
    change("resume", "Continue a paused rollout; servers that failed are tried again at the end"),
    change("abort", "End a rollout; the servers keep the definitions that they have")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Rollouts" })) {}
