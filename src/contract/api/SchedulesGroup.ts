import { Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, InvalidRequest, NotFound } from "../domain/errors.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { Schedule, SchedulePlan, ScheduleRun, scheduleFields } from "../domain/Schedule.ts"
import { Authorization, route } from "./middleware.ts"
import { flag, numberBetween, text } from "./query.ts"

const params = { schedule: Schema.String.annotate({ description: "The id of the schedule." }) }
const runParams = { run: Schema.String.annotate({ description: "The id of the run." }) }

const described = {
  ...scheduleFields,
  server_id: scheduleFields.server_id.annotate({ description: "The server; or give a `selector`." }),
  selector: scheduleFields.selector.annotate({
    description: "The servers, which are selected again for each run; or give a `server_id`."
  }),
  cron: scheduleFields.cron.annotate({
    description: "Minute, hour, day of month, month, day of week. Also names of months and days, `L` and `#`."
  }),
  timezone: scheduleFields.timezone.annotate({ description: "Name of a time zone; default `UTC`." }),
  enabled: scheduleFields.enabled.annotate({ description: "Default `true`." }),
  only_if: scheduleFields.only_if.annotate({
    description: "Servers that do not meet it at their turn are skipped."
  }),
  missed: scheduleFields.missed.annotate({
    description:
      "After a pause of the service: `skip`, the default, or `run` once, if the last time is less than `catch_up` ago."
  }),
  catch_up: scheduleFields.catch_up.annotate({
    description: "Seconds after which a missed time is not run any more; default 3600."
  }),
  overlap: scheduleFields.overlap.annotate({
    description: "If the run before still runs: `skip`, the default, or `queue`: run after it."
  }),
  max_parallel: scheduleFields.max_parallel.annotate({
    description: "Servers that go through the steps at a time; default 5."
  }),
  stagger: scheduleFields.stagger.annotate({
    description: "Seconds between the begins of two servers; default 0."
  }),
  on_failure: scheduleFields.on_failure.annotate({
    description:
      "After a step has failed: `stop`, the default, ends the steps of this server; `continue` goes on with the next."
  })
} as const

const { cron, name, steps, ...optional } = described

/** Body of `POST /api/schedules` (spec 13.1). */
export const CreateSchedule = Schema.Struct({
  name,
  cron,
  steps,
  ...optionalInputs(optional)
})
  .check(
    Schema.makeFilter(({ selector, server_id }) => (selector === undefined) !== (server_id === undefined), {
      expected: "either server_id or selector"
    })
  )
  .annotate({ identifier: "CreateSchedule" })
export type CreateSchedule = typeof CreateSchedule.Type

/** Body of `PATCH /api/schedules/:schedule`; `only_if: null` removes the condition. */
export const PatchSchedule = Schema.Struct({
  ...Struct.map(described, Schema.optionalKey),
  only_if: Schema.optionalKey(Schema.NullOr(described.only_if))
}).annotate({ identifier: "PatchSchedule" })
export type PatchSchedule = typeof PatchSchedule.Type

const right = "schedules"

/** Schedules and their runs (spec 13). */
export class SchedulesGroup extends HttpApiGroup.make("schedules")
  .add(
    HttpApiEndpoint.post("create", "/schedules", {
      query: { dry_run: flag("`true`: returns the plan, and nothing is stored; default `false`.") },
      payload: CreateSchedule.annotate({
        examples: [
          {
            name: "nightly",
            selector: { blueprint_id: "survival" },
            cron: "0 4 * * *",
            timezone: "Europe/Berlin",
            steps: [{ warn: { line: "say Restart in {{left}}", at: [600, 60, 10] } }, { power: "restart" }]
          }
        ]
      }),
      success: [Schedule.pipe(HttpApiSchema.status(201)), SchedulePlan],
      error: [NotFound, Conflict, InvalidRequest]
    }).annotateMerge(
      route("Create a schedule; dry_run=true: show its next times, servers and problems", {
        right,
        audited: "schedule.create"
      })
    ),
    HttpApiEndpoint.get("list", "/schedules", {
      query: {
        server_id: text("Only schedules that match this server today."),
        limit: numberBetween(1, 100, "At most this many schedules; default 20. `Link` has the next page."),
        after: text("Only schedules that are older than the one with this id.")
      },
      success: Schema.Array(Schedule),
      error: InvalidRequest
    }).annotateMerge(route("Schedules that the key may see, newest first", { right })),
    HttpApiEndpoint.get("get", "/schedules/:schedule", {
      params,
      success: Schedule,
      error: NotFound
    }).annotateMerge(route("One schedule, with its next time and last run", { right })),
    HttpApiEndpoint.patch("patch", "/schedules/:schedule", {
      params,
      payload: PatchSchedule,
      success: Schedule,
      error: [NotFound, Conflict, InvalidRequest]
    }).annotateMerge(
      route("Change a schedule, which then has the rights of this key", { right, audited: "schedule.patch" })
    ),
    HttpApiEndpoint.delete("remove", "/schedules/:schedule", {
      params,
      success: HttpApiSchema.Empty(200),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Delete a schedule and its runs", { right, audited: "schedule.delete" })),
    HttpApiEndpoint.post("run", "/schedules/:schedule/run", {
      params,
      success: ScheduleRun.pipe(HttpApiSchema.status(202)),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Run a schedule now", { right, audited: "schedule.run" })),
    HttpApiEndpoint.get("runs", "/schedules/:schedule/runs", {
      params,
      query: {
        limit: numberBetween(1, 20, "At most this many runs; default 20. `Link` has the next page."),
        after: text("Only runs that were due before the one with this id.")
      },
      success: Schema.Array(ScheduleRun),
      error: [NotFound, InvalidRequest]
    }).annotateMerge(route("The last 100 runs of a schedule, newest first", { right })),
    HttpApiEndpoint.get("getRun", "/runs/:run", {
      params: runParams,
      success: ScheduleRun,
      error: NotFound
    }).annotateMerge(route("One run, with the step of each server", { right })),
    HttpApiEndpoint.post("cancelRun", "/runs/:run/cancel", {
      params: runParams,
      success: ScheduleRun.pipe(HttpApiSchema.status(202)),
      error: [NotFound, Conflict]
    }).annotateMerge(
      route("Cancel a run; servers that it has stopped are started again", { right, audited: "run.cancel" })
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Schedules" })) {}
