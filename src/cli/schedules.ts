import { Console, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import type { CreateSchedule } from "../contract/api/SchedulesGroup.ts"
import {
  type RunState,
  type Schedule,
  type SchedulePlan,
  type ScheduleRun,
  ScheduleStep
} from "../contract/domain/Schedule.ts"
import { countsOf, readStep, readWarning, STEP_FORMS, stepText } from "../dashboard/dom/stepText.ts"
import {
  choiceFlag,
  command,
  given,
  group,
  limitFlag,
  numberFlag,
  severalFlag,
  switchFlag,
  textArgument,
  textFlag
} from "./shared/command.ts"
import { ifMissing, wrongUsage } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { conditionsOf, only, selectionOf, selectorFlag, serverNamed } from "./shared/named.ts"
import {
  formatOf,
  jsonOf,
  type Listing,
  objectCommand,
  outputFlags,
  printList,
  printOne,
  wide
} from "./shared/output.ts"
import { confirm, yesFlag } from "./shared/terminal.ts"
import { secondsFlag } from "./shared/times.ts"

/** The most characters of the name of a schedule. */
const LONGEST_NAME = 64

const scheduleArgument = textArgument("schedule", "Id of the schedule, the beginning of one, or its name")
const cronArgument = textArgument(
  "cron",
  "Minute, hour, day of month, month, day of week, such as `0 4 * * *`"
)

const decodeStep = Schema.decodeUnknownEffect(ScheduleStep)

/** Checks a step that has been read from a text. */
const checked = (step: unknown, text: string) =>
  Effect.catchTag(decodeStep(step), "SchemaError", () => wrongUsage(`${text} is no step. ${STEP_FORMS}`))

const colors = {
  running: "yellow",
  done: "green",
  failed: "red",
  skipped: undefined,
  missed: "red",
  cancelled: undefined
} as const satisfies Record<RunState, "yellow" | "green" | "red" | undefined>

/** Returns the id of a schedule of an argument; older ones than the last 100 are found by the id alone. */
const scheduleNamed = Effect.fnUntraced(function* (text: string) {
  const all = yield* ask((muster) => muster.schedules.list({ query: { limit: "100" } }))
  return yield* only("schedule", text, all, ({ name }) => name).pipe(
    Effect.map(({ id }): string => id),
    ifMissing(() => Effect.succeed(text))
  )
})

/** Calls the service for a schedule of an argument. */
const askFor =
  <A, E, R>(call: (schedule: string) => Effect.Effect<A, E, R>) =>
  (text: string) =>
    Effect.flatMap(scheduleNamed(text), call)

const serversText = ({ selector = {}, server_id }: Schedule): string =>
  server_id ??
  [...conditionsOf(selector), ...(selector.ids === undefined ? [] : [`${selector.ids.length} ids`])].join(" ")

const listing: Listing<Schedule> = {
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name,
    cron: ({ cron }) => cron,
    timezone: ({ timezone }) => timezone,
    servers: serversText,
    source: ({ source }) => source,
    next: ({ enabled, next_at }) => (enabled ? (next_at ?? "") : "paused"),
    last: ({ last_run }) =>
      last_run === undefined ? "" : { text: last_run.state, color: colors[last_run.state] },
    steps: wide(({ steps }) => steps.map(stepText).join("; ")),
    "last due": wide(({ last_run }) => last_run?.due_at ?? ""),
    missed: wide(({ catch_up, missed }) =>
      missed === "skip" ? missed : `${missed} up to ${catch_up} s late`
    ),
    overlap: wide(({ overlap }) => overlap),
    parallel: wide(({ max_parallel }) => String(max_parallel)),
    stagger: wide(({ stagger }) => (stagger === 0 ? "" : `${stagger} s`)),
    "on failure": wide(({ on_failure }) => on_failure)
  }
}

const runListing: Listing<ScheduleRun> = {
  columns: {
    id: ({ id }) => id,
    due: ({ due_at }) => due_at,
    state: ({ state }) => ({ text: state, color: colors[state] }),
    servers: countsOf,
    reason: ({ reason }) => reason ?? "",
    started: wide(({ started_at }) => started_at ?? ""),
    finished: wide(({ finished_at }) => finished_at ?? "")
  }
}

const settings = {
  timezone: textFlag("timezone", "Name of a time zone, such as Europe/Berlin; default UTC"),
  server: textFlag("server", "The server: its id, the beginning of one, or its name"),
  selector: selectorFlag,
  missed: choiceFlag(
    "missed",
    ["skip", "run"],
    "What becomes of a time at which the service was not there; default skip"
  ),
  "catch-up": secondsFlag("catch-up", "A missed time is run if it is less than this ago; default 1h", "7d"),
  overlap: choiceFlag(
    "overlap",
    ["skip", "queue"],
    "What becomes of a time while the run before still runs; default skip"
  ),
  "max-parallel": numberFlag("max-parallel", "Servers at a time, 1 to 50; default 5"),
  stagger: secondsFlag("stagger", "Time between the begins of two servers", "1h"),
  "on-failure": choiceFlag(
    "on-failure",
    ["stop", "continue"],
    "After a failed step: end the steps of this server, or continue; default stop"
  ),
  "dry-run": switchFlag("dry-run", "Show the next times, the servers and problems; nothing is stored"),
  ...outputFlags
} as const

type Settings = Command.Command.Config.Infer<typeof settings>

/** Returns the body of a creation. */
const bodyOf = Effect.fnUntraced(function* (
  input: Settings,
  fixed: { readonly name: string; readonly cron: string; readonly steps: ReadonlyArray<ScheduleStep> }
) {
  const selection = yield* selectionOf(input.selector)
  const hasSelector = input.selector.length > 0
  if (hasSelector === (input.server._tag === "Some"))
    return yield* wrongUsage(
      "Name the servers: either --server, or --selector such as --selector label=team=a."
    )
  const servers =
    input.server._tag === "Some"
      ? { server_id: (yield* serverNamed(input.server.value)).id }
      : { selector: selection }
  return {
    ...fixed,
    ...servers,
    ...given({
      timezone: input.timezone,
      missed: input.missed,
      catch_up: input["catch-up"],
      overlap: input.overlap,
      max_parallel: input["max-parallel"],
      stagger: input.stagger,
      on_failure: input["on-failure"]
    })
  } satisfies CreateSchedule
})

/** Returns a time as the clocks of a time zone show it, such as `Sun 29 Nov 2026, 04:00`. */
const inZone = (at: string, timeZone: string): string =>
  new Date(at).toLocaleString("en-GB", {
    timeZone,
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit"
  })

const planLines = ({ problems, servers_total, times }: SchedulePlan, timezone = "UTC"): string =>
  [
    "Next times:",
    ...times.map(({ at, note }) => {
      const local = timezone === "UTC" ? "" : `  ${inZone(at, timezone)} ${timezone}`
      return `  ${at}${local}${note === undefined ? "" : `  (${note})`}`
    }),
    `Servers that match today: ${servers_total}`,
    ...problems.map((problem) => `Problem: ${problem}`)
  ].join("\n")

/** Creates a schedule and prints it, or prints the plan. */
const createOrPlan = Effect.fnUntraced(function* (input: Settings, payload: CreateSchedule) {
  const made = yield* ask((muster) =>
    muster.schedules.create({ payload, query: input["dry-run"] ? { dry_run: true } : {} })
  )
  if (!("times" in made)) return yield* printOne(input, listing, made)
  const format = formatOf(input)
  const isText = format === "table" || format === "wide"
  yield* Console.log(isText ? planLines(made, payload.timezone) : jsonOf(made, 2))
})

const create = command("create", {
  description: `Create a schedule: its servers go through the steps at each time. ${STEP_FORMS}`,
  short: "Create a schedule",
  examples: {
    "muster schedules create say-hi '0 18 * * FRI' --server lobby --step 'command=say hi'":
      "A line for the console, on Fridays at 18:00 UTC",
    "muster schedules create nightly '0 4 * * *' --timezone Europe/Berlin --selector blueprint=survival --step 'warn=5m,1m:say Restart in {{left}}' --step power=restart --dry-run":
      "The next times of a restart, and its servers"
  },
  input: {
    name: textArgument("name", "Name of the schedule"),
    cron: cronArgument,
    step: severalFlag("step", "A step, repeatable, in their order", 20),
    ...settings
  },
  *run({ cron, name, step, ...input }) {
    if (step.length === 0) return yield* wrongUsage(`Give at least one --step. ${STEP_FORMS}`)
    const steps = yield* Effect.forEach(step, (text) => checked(readStep(text), `--step ${text}`))
    yield* createOrPlan(input, yield* bodyOf(input, { name, cron, steps }))
  }
})

const restart = command("restart", {
  description:
    "Create a schedule that restarts servers. Players of running servers are warned first; servers that do not run are skipped.",
  short: "Create a schedule that restarts servers",
  examples: {
    'muster schedules restart "0 4 * * *" --timezone Europe/Berlin --selector label=team=a --warn 10m,1m,10s':
      "Each night at four, with three warnings",
    'muster schedules restart "0 5 * * MON" --server lobby --line "say Back in a minute ({{left}})"':
      "Each Monday, with another line"
  },
  input: {
    cron: cronArgument,
    name: textFlag(
      "name",
      "Name of the schedule; default: `restart` and its servers, such as `restart label=team=a`"
    ),
    warn: textFlag("warn", "Times before the restart at which players are warned, such as 10m,1m,10s"),
    line: Flag.String("line").pipe(
      Flag.withDescription("The line that warns players; {{left}} is the time that is left"),
      Flag.withDefault("say Restart in {{left}}")
    ),
    ...settings
  },
  *run({ cron, line, name, warn, ...input }) {
    const warning =
      warn._tag === "None"
        ? []
        : [yield* checked(readWarning(`${warn.value}:${line}`), `--warn ${warn.value}`)]
    const steps = [...warning, { power: "restart" as const }]
    const servers = Option.match(input.server, {
      onNone: () => input.selector.join(" "),
      onSome: (server) => server
    })
    const own = Option.getOrElse(name, () => `restart ${servers}`.slice(0, LONGEST_NAME))
    const body = yield* bodyOf(input, { name: own, cron, steps })
    yield* createOrPlan(input, { ...body, only_if: { status: "running" } })
  }
})

const list = command("list", {
  description: "List schedules, newest first, with their next times",
  examples: {
    "muster schedules list": "The last 20",
    "muster schedules list --server lobby -o wide": "Those of a server, with their steps"
  },
  input: {
    server: textFlag("server", "Only schedules that match this server today"),
    limit: limitFlag("At most this many schedules, 1 to 100; default 20", 20),
    ...outputFlags
  },
  *run({ limit, server, ...flags }) {
    const of = server._tag === "None" ? {} : { server_id: (yield* serverNamed(server.value)).id }
    const found = yield* ask((muster) => muster.schedules.list({ query: { limit: String(limit), ...of } }))
    yield* printList(flags, listing, found, "No schedules. `muster schedules create` makes one.")
  }
})

const show = objectCommand(
  "show",
  scheduleArgument,
  listing,
  askFor((schedule) => ask((muster) => muster.schedules.get({ params: { schedule } }))),
  {
    description: "Show a schedule, with its next time and its last run",
    examples: {
      "muster schedules show yxr5c0mbys6m": "Its settings",
      "muster schedules show yxr5c0mbys6m --json": "As JSON"
    }
  }
)

const runs = command("runs", {
  description: "List the last runs of a schedule, newest first",
  examples: {
    "muster schedules runs yxr5c0mbys6m": "The last 20",
    "muster schedules runs yxr5c0mbys6m --json": "With the step of each server"
  },
  input: {
    schedule: scheduleArgument,
    limit: limitFlag("At most this many runs, 1 to 20; default 20", 20),
    ...outputFlags
  },
  *run({ limit, schedule: text, ...flags }) {
    const schedule = yield* scheduleNamed(text)
    const found = yield* ask((muster) =>
      muster.schedules.runs({ params: { schedule }, query: { limit: String(limit) } })
    )
    yield* printList(flags, runListing, found, "No runs.")
  }
})

const run = objectCommand(
  "run",
  scheduleArgument,
  runListing,
  askFor((schedule) => ask((muster) => muster.schedules.run({ params: { schedule } }))),
  {
    description: "Run a schedule now. The service goes through the steps, also when this command ends.",
    examples: {
      "muster schedules run yxr5c0mbys6m": "Begin a run",
      "muster schedules run yxr5c0mbys6m -o id": "Print the id of the run"
    }
  }
)

const cancel = objectCommand(
  "cancel",
  textArgument("run", "Id of the run"),
  runListing,
  (id) => ask((muster) => muster.schedules.cancelRun({ params: { run: id } })),
  {
    description: "Cancel a run. Servers that it has stopped are started again.",
    examples: {
      "muster schedules cancel k7f3m9q2x8ab": "By the id of the run",
      "muster schedules cancel k7f3m9q2x8ab --json": "With the run as JSON"
    }
  }
)

const enable = (name: "pause" | "resume", enabled: boolean, description: string) =>
  objectCommand(
    name,
    scheduleArgument,
    listing,
    askFor((schedule) =>
      ask((muster) => muster.schedules.patch({ params: { schedule }, payload: { enabled } }))
    ),
    {
      description,
      examples: {
        [`muster schedules ${name} yxr5c0mbys6m`]: "By its id",
        [`muster schedules ${name} yxr5c0mbys6m --json`]: "With the schedule as JSON"
      }
    }
  )

const remove = command("delete", {
  description: "Delete a schedule and its runs",
  examples: {
    "muster schedules delete yxr5c0mbys6m": "Asks first",
    "muster schedules delete yxr5c0mbys6m --yes": "Without a question"
  },
  input: { schedule: scheduleArgument, yes: yesFlag },
  *run({ schedule: text, yes }) {
    const schedule = yield* scheduleNamed(text)
    yield* confirm(`Delete the schedule ${text}, and its runs?`, yes)
    yield* ask((muster) => muster.schedules.remove({ params: { schedule } }))
  }
})

export const schedules = group("schedules", {
  short: "Restart servers, and do more, at fixed times",
  description:
    "Create, run and show the schedules of a running service: steps that servers go through at fixed times.",
  subcommands: [
    create,
    restart,
    list,
    show,
    runs,
    run,
    cancel,
    enable("pause", false, "Pause a schedule until it is resumed; a present run continues"),
    enable("resume", true, "Resume a paused schedule; it then has the rights of this key"),
    remove
  ]
}).pipe(Command.provide(CommandClient))
