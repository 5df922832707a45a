import { type Reply, request, segment, useReply } from "../../api/http.ts"
import { useBlueprints, useTargets } from "../../api/session.ts"
import type { Schedule, SchedulePlan } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted, labelTexts } from "../../dom/format.ts"
import { readStep, stepText } from "../../dom/stepText.ts"
import { FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { blueprintField, bodyOf, FieldInput, field, linesOf, type Texts, useForm } from "../../parts/form.tsx"
import { done } from "../../state/notices.ts"
import { nameOf, rows } from "../../state/servers.ts"

const styles = { dateStyle: "medium", timeStyle: "short", hour12: false } as const

const viewerZone = Intl.DateTimeFormat().resolvedOptions().timeZone

/** Returns a time in a zone; a browser may not know the zone. */
const timeIn = (at: string, zone: string): string | undefined => {
  try {
    return new Date(at).toLocaleString([], { ...styles, timeZone: zone })
  } catch {
    return undefined
  }
}

/** A time in the zone of the schedule and, if it is another one, in that of the viewer. */
export const bothTimes = (at: string, zone: string): View => {
  const own = timeIn(at, zone)
  const viewer = timeIn(at, viewerZone)
  return (
    <span class="both-times">
      <time dateTime={at}>{`${own ?? viewer} ${own === undefined ? viewerZone : zone}`}</time>
      {own !== undefined && zone !== viewerZone && (
        <span class="muted">{`${viewer} here (${viewerZone})`}</span>
      )}
    </span>
  )
}

const identity = [
  field("text", "name", "Name"),
  field(
    "text",
    "cron",
    "Times",
    "0 4 * * * is each day at 04:00: minute, hour, day of month, month, day of week."
  ),
  field("text", "timezone", "Time zone", "A name such as Europe/Berlin.")
]

/** Servers whose names are suggested. */
const MOST_NAMES = 200

const serversWith = (blueprints: ReturnType<typeof useBlueprints>) => [
  field(
    "text",
    "server_id",
    "Server",
    "The name or id of one server. Empty: the servers of a blueprint or with labels.",
    { choices: [...rows.values()].slice(0, MOST_NAMES).map(({ id }) => [nameOf(id), id] as const) }
  ),
  blueprintField(blueprints, "All blueprints", "Its servers, those of later, too. Not used with one server."),
  field("pairs", "labels", "Labels", "One key=value a line. Empty: any labels.")
]

const steps = field(
  "lines",
  "steps",
  "Steps",
  "One a line, in their order. Change the words and times as you like."
)

/** Steps to begin with, and what each does. */
const examples: ReadonlyArray<readonly [string, string]> = [
  ["warn=10m,1m,10s:say Restart in {{left}}", "Warn the players 10 min, 1 min and 10 s before the next step"],
  ["backup", "Back up, and wait for the end"],
  ["power=restart", "Restart"],
  ["power=start", "Start"],
  ["power=stop", "Stop"],
  ["command=say hello", "Write a line to the console"],
  ["wait=60s", "Wait"],
  ["wait-for=running:2m", "Wait until the server runs"],
  ["upgrade", "Upgrade to today’s blueprint"],
  ["webhook=ID", "Send to a webhook"]
]

/** @param targets the ids of the targets that a step may name */
const exampleWith = (targets: ReadonlyArray<string> = []) =>
  field("choice", "example", "Add a step", "", {
    choices: [
      ["", "Choose a step"],
      ...examples,
      ...targets.map((id) => [`backup=${id}`, `Back up to ${id}`] as const)
    ]
  })

const settings = [
  field("number", "max_parallel", "Servers at a time", "1 to 50."),
  field("number", "stagger", "Seconds between two servers"),
  field("choice", "only_if", "State of the servers", "Others are skipped.", {
    choices: [
      ["", "In any state"],
      ["running", "Only those that run"],
      ["offline", "Only those that are offline"]
    ]
  }),
  field("choice", "on_failure", "After a failed step", "", {
    choices: [
      ["stop", "End the steps of this server"],
      ["continue", "Continue with the next step"]
    ]
  }),
  field("choice", "overlap", "If the last run still runs", "", {
    choices: [
      ["skip", "Skip this time"],
      ["queue", "Run after it"]
    ]
  }),
  field("choice", "missed", "If the service was down", "", {
    choices: [
      ["skip", "Skip missed times"],
      ["run", "Run the last missed time once"]
    ]
  }),
  field("number", "catch_up", "Seconds for a missed time", "A time that is missed by more is skipped.")
]

/** Returns the id of the only server with a name; any other text as it is. */
const idOf = (text: string): string => {
  const [first, ...others] = [...rows.values()].filter(({ name }) => name === text)
  return first === undefined || others.length > 0 || rows.has(text) ? text : first.id
}

/** Returns the name of a server, or its id if others have the name. */
const shownAs = (id: string): string => (idOf(nameOf(id)) === id ? nameOf(id) : id)

const textsOf = (schedule: Schedule): Texts => ({
  ...{ name: schedule.name, cron: schedule.cron, timezone: schedule.timezone },
  server_id: shownAs(schedule.server_id ?? ""),
  blueprint_id: schedule.selector?.blueprint_id ?? "",
  labels: labelTexts(schedule.selector?.labels).join("\n"),
  steps: schedule.steps.map(stepText).join("\n"),
  max_parallel: String(schedule.max_parallel),
  stagger: String(schedule.stagger),
  only_if: schedule.only_if?.status ?? "",
  ...{ on_failure: schedule.on_failure, overlap: schedule.overlap, missed: schedule.missed },
  catch_up: String(schedule.catch_up)
})

/** @param server_id the server whose page opens the form, if one does */
const freshFor = (server_id: string): Texts => ({
  server_id: shownAs(server_id),
  ...{ timezone: viewerZone, cron: "0 4 * * *" },
  ...{ max_parallel: "5", stagger: "0", on_failure: "stop", overlap: "skip" },
  ...{ missed: "skip", catch_up: "3600" }
})

/** Returns the servers of a form; the conditions of a selector that the form does not show stay. */
const serversOf = (texts: Texts, before: Schedule | undefined) => {
  const { blueprint_id = "", labels = "", server_id = "" } = texts
  if (server_id.trim() !== "") return { server_id: idOf(server_id.trim()) }
  const { blueprint_id: _, labels: __, ...others } = before?.selector ?? {}
  return {
    selector: {
      ...others,
      ...(blueprint_id.trim() === "" ? {} : { blueprint_id: blueprint_id.trim() }),
      ...(linesOf(labels).length === 0 ? {} : { labels: linesOf(labels) })
    }
  }
}

const bodyIn = (texts: Texts, before: Schedule | undefined): Record<string, unknown> => {
  const { only_if = "", ...rest } = bodyOf(settings, texts)
  const uptime = before?.only_if?.min_uptime
  const condition = {
    ...(only_if === "" ? {} : { status: only_if }),
    ...(uptime === undefined ? {} : { min_uptime: uptime })
  }
  const hasCondition = Object.keys(condition).length > 0
  return {
    ...bodyOf(identity, texts),
    ...serversOf(texts, before),
    steps: linesOf(texts.steps).map(readStep),
    ...rest,
    ...(hasCondition ? { only_if: condition } : before?.only_if === undefined ? {} : { only_if: null })
  }
}

/** Why a form cannot be sent yet. */
const lackOf = (texts: Texts): string | undefined => {
  const { blueprint_id = "", cron = "", labels = "", name = "", server_id = "", steps = "" } = texts
  if (name.trim() === "") return "Enter a name first."
  if (cron.trim() === "") return "Enter the times first."
  if (`${server_id}${blueprint_id}${labels}`.trim() === "") return "Choose servers first."
  const wrong = linesOf(steps).find((line) => readStep(line) === undefined)
  if (wrong !== undefined) return `This line is no step: ${wrong}`
  return linesOf(steps).length === 0 ? "Enter a step first." : undefined
}

/** Why the service would refuse the form, if so; a service that is away may be back. */
const refusalOf = (plan: Reply<SchedulePlan> | undefined): string | undefined => {
  if (plan === undefined) return "Computing the next times"
  return plan.ok || plan.code === 0 ? undefined : `${plan.detail} ${plan.hint}`
}

const Plan = ({ plan, timezone }: { readonly plan: SchedulePlan; readonly timezone: string }): View => (
  <section class="stack schedule-plan" aria-label="Preview">
    <p>
      <strong>{counted(plan.servers_total, "server")}</strong>
      {" today."}
    </p>
    {plan.problems.map((problem) => (
      <p key={problem} class="note is-failed">
        {problem}
      </p>
    ))}
    <ol aria-label="Next times">
      {plan.times.map(({ at, note }) => (
        <li key={at}>
          {bothTimes(at, timezone)}
          {note !== undefined && <span class="note">{note}</span>}
        </li>
      ))}
    </ol>
  </section>
)

const ScheduleDialog = (props: {
  readonly schedule: Schedule | undefined
  readonly server_id: string
  readonly onStored: (schedule: Schedule) => void
}): View => {
  const { onStored, schedule, server_id } = props
  const { inputs, set, texts } = useForm(() =>
    schedule === undefined ? freshFor(server_id) : textsOf(schedule)
  )
  const blueprints = useBlueprints()
  const example = exampleWith(useTargets())
  const lack = lackOf(texts)
  const body = bodyIn(texts, schedule)
  const { only_if, ...others } = body
  const sent = only_if === null ? others : body
  const plan = useReply<SchedulePlan>(
    lack === undefined
      ? (signal) => request("POST", "/api/schedules?dry_run=true", { body: sent, signal })
      : undefined,
    [JSON.stringify(sent), lack],
    { settle: 400, isOther: true }
  )
  return (
    <FormDialog<Schedule>
      title={schedule === undefined ? "New schedule" : `Change ${schedule.name}`}
      button={schedule === undefined ? "Create the schedule" : "Save"}
      whyNot={lack ?? refusalOf(plan)}
      onSubmit={() =>
        schedule === undefined
          ? request<Schedule>("POST", "/api/schedules", { body: sent })
          : request<Schedule>("PATCH", `/api/schedules/${segment(schedule.id)}`, { body })
      }
      onDone={onStored}
      class="is-wide"
    >
      {inputs(identity)}
      {inputs(serversWith(blueprints))}
      <FieldInput
        field={example}
        text=""
        onChange={(line) => set("steps", [...linesOf(texts.steps), line].join("\n"))}
      />
      {inputs([steps])}
      <details>
        <summary>More settings</summary>
        {inputs(settings)}
      </details>
      {lack === undefined && plan?.ok === true && (
        <Plan plan={plan.body} timezone={texts.timezone ?? "UTC"} />
      )}
    </FormDialog>
  )
}

/** Opens the form of a new schedule, of one server if it is named, or of a change. */
export const showSchedule = (onChanged: () => void, schedule?: Schedule, server_id = ""): void =>
  openDialog(
    <ScheduleDialog
      schedule={schedule}
      server_id={server_id}
      onStored={({ name }) => {
        done(`${schedule === undefined ? "Created" : "Changed"}: ${name}`)
        onChanged()
      }}
    />
  )
