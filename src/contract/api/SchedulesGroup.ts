import { Schema, Struct } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, NotFound } from "../domain/errors.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { Schedule, SchedulePlan, ScheduleRun, scheduleFields } from "../domain/Schedule.ts"
import { del, get, patch, post } from "./endpoint.ts"
import { Authorization } from "./middleware.ts"
import { flag, numberBetween, text } from "./query.ts"

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
    post(
      "create",
      "/schedules",
      "Create a schedule; dry_run=true: show its next times, servers and problems",
      {
        right,
        audited: "schedule.create",
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
        errors: [NotFound, Conflict]
      }
    ),
    get("list", "/schedules", "Schedules that the key may see, newest first", {
      right,
      query: {
        server_id: text("Only schedules that match this server today."),
        limit: numberBetween(1, 100, "At most this many schedules; default 20. `Link` has the next page."),
        after: text("Only schedules that are older than the one with this id.")
      },
      success: Schema.Array(Schedule)
    }),
    get("get", "/schedules/:schedule", "One schedule, with its next time and last run", {
      right,
      success: Schedule
    }),
    patch("patch", "/schedules/:schedule", "Change a schedule, which then has the rights of this key", {
      right,
      audited: "schedule.patch",
      payload: PatchSchedule,
      success: Schedule,
      errors: [Conflict]
    }),
    del("remove", "/schedules/:schedule", "Delete a schedule and its runs", {
      right,
      audited: "schedule.delete",
      success: HttpApiSchema.Empty(200),
      errors: [Conflict]
    }),
    post("run", "/schedules/:schedule/run", "Run a schedule now", {
      right,
      audited: "schedule.run",
      success: ScheduleRun.pipe(HttpApiSchema.status(202)),
      errors: [Conflict]
    }),
    get("runs", "/schedules/:schedule/runs", "The last 100 runs of a schedule, newest first", {
      right,
      query: {
        limit: numberBetween(1, 20, "At most this many runs; default 20. `Link` has the next page."),
        after: text("Only runs that were due before the one with this id.")
      },
      success: Schema.Array(ScheduleRun)
    }),
    get("getRun", "/runs/:run", "One run, with the step of each server", { right, success: ScheduleRun }),
    post("cancelRun", "/runs/:run/cancel", "Cancel a run; servers that it has stopped are started again", {
      right,
      audited: "run.cancel",
      success: ScheduleRun.pipe(HttpApiSchema.status(202)),
      errors: [Conflict]
    })
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Schedules" })) {}
