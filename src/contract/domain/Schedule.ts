/** Schedules: steps that servers go through at fixed times (spec 13). */
import { Schema, Struct } from "effect"
import { BackupRequest } from "./Backup.ts"
import { ConsoleLine } from "./ConsoleLine.ts"
import { DefinitionId, ServerId } from "./Id.ts"
import { PrintableText } from "./Labels.ts"
import { TimeText } from "./nowText.ts"
import { optionalInput } from "./optionalInput.ts"
import { Selector } from "./Selector.ts"
import { ServerStatus } from "./ServerStatus.ts"
import { inUnit } from "./units.ts"
import { WebhookId } from "./Webhook.ts"

/** Schedules of an installation, schedules of one server or one blueprint, and kept runs of each schedule. */
export const MOST_SCHEDULES = 1_000
export const MOST_OF_SERVER = 10
export const KEPT_RUNS = 100

export const MOST_STEPS = 20
const MOST_NOTICES = 20
const DAY = 24 * 60 * 60

/** Servers of one run. */
export const MOST_SERVERS = 1_000

const seconds = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }, inUnit("a number of seconds")))

const line = ConsoleLine.check(Schema.isNonEmpty())

export const SchedulePower = Schema.Literals(["start", "stop", "restart", "kill", "pause", "unpause"])

const CommandStep = Schema.Struct({
  command: Schema.Array(line).check(Schema.isMinLength(1), Schema.isMaxLength(100))
}).annotate({ identifier: "CommandStep", description: "Writes lines to the console of a running server." })

const WaitStep = Schema.Struct({ wait: seconds(1, DAY) }).annotate({
  identifier: "WaitStep",
  description: "Waits for some seconds."
})

const PowerStep = Schema.Struct({
  power: SchedulePower,
  wait_seconds: optionalInput(seconds(0, 3600))
}).annotate({
  identifier: "PowerStep",
  description: "Starts, stops, restarts, kills, pauses or unpauses the server, as `POST .../power` does."
})

const WarnStep = Schema.Struct({
  warn: Schema.Struct({
    line: line.annotate({ description: "The line for the console; `{{left}}` is the time that is left." }),
    at: Schema.Array(seconds(1, DAY))
      .check(Schema.isMinLength(1), Schema.isMaxLength(MOST_NOTICES))
      .annotate({ description: "Seconds before the end of the step at which the line is written." })
  }).annotate({ identifier: "Warning" })
}).annotate({
  identifier: "WarnStep",
  description:
    "Warns players, and ends once the time is over. A server that does not run gets no line, and the step ends at once."
})

const WaitForStep = Schema.Struct({
  wait_for: Schema.Literals(["running", "offline"]),
  timeout: seconds(1, DAY)
}).annotate({
  identifier: "WaitForStep",
  description: "Waits until the server has a status; fails after the timeout."
})

const UpgradeStep = Schema.Struct({
  upgrade: Schema.Struct({ blueprint_id: optionalInput(DefinitionId) }).annotate({
    identifier: "ScheduledUpgrade"
  })
}).annotate({
  identifier: "UpgradeStep",
  description: "Gives the server today's definition of its blueprint, or of another one."
})

const WebhookStep = Schema.Struct({ webhook: WebhookId }).annotate({
  identifier: "WebhookStep",
  description: "Sends a message to a webhook. Needs a key of the scope `AppAdmin`."
})

const BackupStep = Schema.Struct({
  backup: Schema.Struct({
    ...BackupRequest.fields,
    background: optionalInput(
      Schema.Boolean.annotate({
        description: "`true`: the next step does not wait for the end of the backup."
      })
    )
  }).annotate({ identifier: "ScheduledBackup" })
}).annotate({
  identifier: "BackupStep",
  description: "Backs up the files of the server, and waits for the end; fails if the backup fails."
})

/** The steps of this version, by their names. */
export const stepKinds = {
  command: CommandStep,
  wait: WaitStep,
  power: PowerStep,
  warn: WarnStep,
  wait_for: WaitForStep,
  upgrade: UpgradeStep,
  backup: BackupStep,
  webhook: WebhookStep
} as const

export const ScheduleStep = Schema.Union(Object.values(stepKinds)).annotate({ identifier: "ScheduleStep" })
export type ScheduleStep = typeof ScheduleStep.Type

/** Returns the seconds that a step may take, apart from the calls to its node. */
export const longestOf = (step: ScheduleStep): number => {
  if ("wait" in step) return step.wait
  if ("warn" in step) return Math.max(...step.warn.at)
  return "wait_for" in step ? step.timeout : 0
}

export const ScheduleSteps = Schema.Array(ScheduleStep).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(MOST_STEPS),
  Schema.makeFilter((steps) => steps.reduce((sum, step) => sum + longestOf(step), 0) <= DAY, {
    expected: "steps that take at most 24 h together"
  })
)

export const Condition = Schema.Struct({
  status: optionalInput(Schema.Literals(ServerStatus.literals)),
  min_uptime: optionalInput(seconds(1, 365 * DAY))
})
  .check(
    Schema.makeFilter((condition) => Object.keys(condition).length > 0, {
      expected: "at least one of status, min_uptime"
    })
  )
  .annotate({ identifier: "ScheduleCondition" })

/** The fields that a caller sets. */
export const scheduleFields = {
  name: PrintableText(64),
  server_id: ServerId,
  selector: Selector,
  cron: Schema.String.check(Schema.isMaxLength(256)),
  timezone: Schema.String.check(Schema.isMaxLength(64)),
  steps: ScheduleSteps,
  enabled: Schema.Boolean,
  only_if: Condition,
  missed: Schema.Literals(["skip", "run"]),
  catch_up: seconds(0, 7 * DAY),
  overlap: Schema.Literals(["skip", "queue"]),
  max_parallel: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 50 })),
  stagger: seconds(0, 3600),
  on_failure: Schema.Literals(["stop", "continue"])
} as const

/** The settings of a schedule, with every default. Exactly one of `server_id` and `selector` is set. */
export const ScheduleSettings = Schema.Struct({
  ...scheduleFields,
  server_id: Schema.optionalKey(scheduleFields.server_id),
  selector: Schema.optionalKey(scheduleFields.selector),
  only_if: Schema.optionalKey(scheduleFields.only_if),
  source: Schema.Literals(["api", "blueprint"]).annotate({
    description: "`blueprint`: a blueprint has it, for its servers; only the files of blueprints change it."
  })
})
export type ScheduleSettings = typeof ScheduleSettings.Type

/** A schedule of a blueprint, with every default (spec 13.7). */
export const BlueprintSchedule = Schema.Struct({
  ...Struct.omit(ScheduleSettings.fields, ["server_id", "selector", "source"])
}).annotate({ identifier: "BlueprintSchedule" })
export type BlueprintSchedule = typeof BlueprintSchedule.Type

/** The values of fields that a request or a blueprint leaves out. */
export const scheduleDefaults = {
  timezone: "UTC",
  enabled: true,
  missed: "skip",
  catch_up: 3600,
  overlap: "skip",
  max_parallel: 5,
  stagger: 0,
  on_failure: "stop"
} as const satisfies Partial<ScheduleSettings>

export const RunState = Schema.Literals(["running", "done", "failed", "skipped", "missed", "cancelled"])
export type RunState = typeof RunState.Type

export const ServerRunState = Schema.Literals(["queued", "running", "done", "failed", "skipped", "cancelled"])
export type ServerRunState = typeof ServerRunState.Type

export const hasRun = (state: ServerRunState): boolean => state !== "queued" && state !== "running"

const LastRun = Schema.Struct({ id: Schema.String, due_at: TimeText, state: RunState }).annotate({
  identifier: "LastScheduleRun"
})

/** A schedule as callers see it (spec 13.1). */
export const Schedule = Schema.Struct({
  id: Schema.String,
  ...ScheduleSettings.fields,
  next_at: Schema.optionalKey(TimeText.annotate({ description: "Absent while the schedule is disabled." })),
  last_run: Schema.optionalKey(LastRun),
  created_at: TimeText,
  created_by: Schema.optionalKey(
    Schema.String.annotate({ description: "Id of the key whose rights the schedule has." })
  )
}).annotate({ identifier: "Schedule" })
export type Schedule = typeof Schedule.Type

export const ServerRun = Schema.Struct({
  state: ServerRunState,
  step: Schema.Int.annotate({
    description: "The number of the present or last step, from 1; 0: none has begun."
  }),
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "ServerRun" })

/** One run of a schedule (spec 13.2). */
export const ScheduleRun = Schema.Struct({
  id: Schema.String,
  schedule_id: Schema.String,
  due_at: TimeText,
  started_at: Schema.optionalKey(
    TimeText.annotate({ description: "Absent while it waits for the run before." })
  ),
  finished_at: Schema.optionalKey(TimeText),
  state: RunState,
  reason: Schema.optionalKey(Schema.String),
  servers: Schema.Record(Schema.String, ServerRun)
}).annotate({ identifier: "ScheduleRun" })
export type ScheduleRun = typeof ScheduleRun.Type

/** A plan says what a schedule would do (`?dry_run=true`). */
export const SchedulePlan = Schema.Struct({
  times: Schema.Array(
    Schema.Struct({
      at: TimeText,
      note: Schema.optionalKey(Schema.String.annotate({ description: "Where the clocks change." }))
    }).annotate({ identifier: "ScheduleTime" })
  ),
  servers_total: Schema.Int,
  servers: Schema.Array(ServerId).annotate({ description: "The servers that match today; the first 1,000." }),
  problems: Schema.Array(Schema.String)
}).annotate({ identifier: "SchedulePlan" })
export type SchedulePlan = typeof SchedulePlan.Type

/** The row of a schedule. */
export const ScheduleRecord = Schema.Struct({
  id: Schema.String,
  settings: ScheduleSettings,
  enabled: Schema.Boolean,
  server_id: Schema.NullOr(ServerId),
  next_at: Schema.NullOr(TimeText),
  created_by: Schema.NullOr(Schema.String),
  created_at: TimeText
})
export type ScheduleRecord = typeof ScheduleRecord.Type

/** The row of a run, with the settings that the schedule had when the run began. */
export const ScheduleRunRecord = Schema.Struct({
  id: Schema.String,
  schedule_id: Schema.String,
  due_at: TimeText,
  state: RunState,
  reason: Schema.NullOr(Schema.String),
  settings: Schema.NullOr(ScheduleSettings),
  created_by: Schema.NullOr(Schema.String),
  /** Why a run is to be cancelled, if it is. */
  cancelling: Schema.NullOr(Schema.String),
  started_at: Schema.NullOr(TimeText),
  finished_at: Schema.NullOr(TimeText)
})
export type ScheduleRunRecord = typeof ScheduleRunRecord.Type

/** A server of a run. It is written before and after each step. */
export const RunServerRecord = Schema.Struct({
  run_id: Schema.String,
  server_id: ServerId,
  position: Schema.Int,
  state: ServerRunState,
  /** The steps that are over. */
  step: Schema.Int,
  /** When the next step has begun, in milliseconds since the epoch, if it has. */
  begun_at: Schema.NullOr(Schema.Int),
  /** Lines of a warning that are written. */
  warned: Schema.Int,
  /** Whether a step has stopped the server, and none has started it since. */
  stopped: Schema.Boolean,
  reason: Schema.NullOr(Schema.String)
})
export type RunServerRecord = typeof RunServerRecord.Type

/** The payload of an event about a run (spec 13.6). */
export const ScheduleNews = Schema.Struct({
  schedule_id: Schema.String,
  name: Schema.String,
  run_id: Schema.String,
  due_at: TimeText,
  state: Schema.Literals(["missed", "failed"]),
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "ScheduleNews" })
export type ScheduleNews = typeof ScheduleNews.Type
