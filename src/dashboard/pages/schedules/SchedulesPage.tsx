import type { ComponentChildren } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { request, segment, useGet, useNewest } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { RunState, Schedule, ScheduleRun } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted, dateTime, duration } from "../../dom/format.ts"
import { countsOf, stepText } from "../../dom/stepText.ts"
import { confirm, removalItem } from "../../parts/Dialog.tsx"
import { serverLink } from "../../parts/eventList.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import { action, drawReply, empty, fact, label, pageHead, status } from "../../parts/parts.tsx"
import { tell } from "../../state/notices.ts"
import { isCut, isLoaded, membership, nameOf, rows } from "../../state/servers.ts"
import { selectedBy } from "../rollouts/RolloutCard.tsx"
import { bothTimes, showSchedule } from "./scheduleDialog.tsx"

/** The status whose colour a state of a run has. */
export const runColours: Readonly<Record<RunState, string>> = {
  running: "installing",
  done: "running",
  failed: "unknown",
  skipped: "offline",
  missed: "unknown",
  cancelled: "stopping"
}

const SHOWN = 5

const Failures = ({ servers }: ScheduleRun): View | null => {
  const failed = Object.entries(servers).filter(([, { state }]) => state === "failed")
  return failed.length === 0 ? null : (
    <ul class="run-failures">
      {failed.slice(0, SHOWN).map(([id, { reason }]) => (
        <li key={id}>
          {serverLink(id, nameOf(id))}
          <span class="muted">{reason}</span>
        </li>
      ))}
      {failed.length > SHOWN && <li>{`and ${counted(failed.length - SHOWN, "other")}`}</li>}
    </ul>
  )
}

const cancel = ({ id }: ScheduleRun, onChanged: () => void): void =>
  confirm(
    "Cancel the run?",
    "No further step is begun. Servers that the run has stopped are started again.",
    "Cancel the run",
    () =>
      void tell(
        request("POST", `/api/runs/${segment(id)}/cancel`),
        "Cancelled: the run",
        "The run was not cancelled"
      ).then(onChanged)
  )

const Run = (run: ScheduleRun, onChanged: () => void): View => {
  const { due_at, finished_at, id, reason, started_at, state } = run
  const took =
    started_at === undefined || finished_at === undefined
      ? undefined
      : duration(Date.parse(finished_at) - Date.parse(started_at))
  return (
    <li key={id} class="run">
      <div class="across">
        {status(state === "running" && started_at === undefined ? "waits" : state, runColours[state])}
        <time dateTime={due_at}>{dateTime(due_at)}</time>
        <span class="muted">{[countsOf(run), took].filter(Boolean).join(", ")}</span>
        <span class="grow" />
        {state === "running" &&
          action({ text: "Cancel…", whyNot: whyNot("schedules"), onClick: () => cancel(run, onChanged) })}
      </div>
      {reason !== undefined && state !== "done" && <p class="muted">{reason}</p>}
      <Failures {...run} />
    </li>
  )
}

/** The last runs of a schedule, newest first. */
export const ScheduleRuns = (props: {
  readonly id: string
  readonly again: number
  readonly onChanged: () => void
}): ComponentChildren => {
  const reply = useGet<ReadonlyArray<ScheduleRun>>(`/api/schedules/${segment(props.id)}/runs`, props.again)
  return drawReply(reply, "Loading the runs", (runs) =>
    runs.length === 0 ? (
      <p class="muted">It has not run yet.</p>
    ) : (
      <ol class="runs" aria-label="Runs, newest first">
        {runs.map((run) => Run(run, props.onChanged))}
      </ol>
    )
  )
}

const EVERY = 5000

const pathOf = ({ id }: Schedule): string => `/api/schedules/${segment(id)}`

/** Returns why the caller cannot change a schedule, if it cannot: the file of a blueprint does. */
const whyUnchanged = ({ selector, source }: Schedule): string | undefined =>
  whyNot("schedules") ??
  (source === "blueprint" ? `The file of the blueprint ${selector?.blueprint_id} has it.` : undefined)

const itemsOf = (schedule: Schedule, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const lacks = whyUnchanged(schedule)
  return [
    { text: "Change…", whyNot: lacks, onChoose: () => showSchedule(onChanged, schedule) },
    removalItem({
      verb: "Delete",
      whyNot: lacks,
      name: schedule.name,
      text: "It runs no more, and the list of its runs is deleted.",
      path: pathOf(schedule),
      onEnded: onChanged
    })
  ]
}

const Actions = (schedule: Schedule, onChanged: () => void): View => {
  const { enabled, name } = schedule
  const lacks = whyNot("schedules")
  const toggle = () =>
    tell(
      request("PATCH", pathOf(schedule), { body: { enabled: !enabled } }),
      `${enabled ? "Paused" : "Resumed"}: ${name}`,
      `${name} was not ${enabled ? "paused" : "resumed"}`
    ).then(onChanged)
  const run = () =>
    tell(request("POST", `${pathOf(schedule)}/run`), `Begun: ${name}`, `${name} was not begun`).then(
      onChanged
    )
  return (
    <div class="power">
      {action({ text: "Run now", icon: "play", whyNot: lacks, onClick: () => void run() })}
      {action({
        text: enabled ? "Pause" : "Resume",
        icon: enabled ? "pause" : "play",
        whyNot: whyUnchanged(schedule),
        onClick: () => void toggle()
      })}
      <Menu label={`Actions on ${name}`} class="ghost square" items={itemsOf(schedule, onChanged)} />
    </div>
  )
}

/** The server of a schedule, by its name once it is known; one that is deleted is marked. */
const ServerOf = ({ id }: { readonly id: string }): View => {
  membership.value
  const isGone = isLoaded.value && !isCut.value && !rows.has(id)
  return (
    <span class="across">
      {serverLink(id, nameOf(id))}
      {isGone && <span class="muted">is deleted: its times are skipped</span>}
    </span>
  )
}

const ScheduleCard = (props: {
  readonly schedule: Schedule
  readonly tick: number
  readonly onChanged: () => void
}): View => {
  const { onChanged, schedule, tick } = props
  const { cron, enabled, id, last_run, name, next_at, selector, server_id, source, steps, timezone } =
    schedule
  const [isOpen, setOpen] = useState(false)
  const card = useRef<HTMLElement>(null)
  useEffect(() => {
    if (location.hash === `#${id}`) card.current?.scrollIntoView()
  }, [])
  return (
    <article ref={card} class="stack card schedule" aria-label={`Schedule ${name}`}>
      <div class="across schedule-head">
        <h2>{name}</h2>
        {!enabled && status("paused", "paused")}
        <span class="grow" />
        {Actions(schedule, onChanged)}
      </div>
      <dl class="facts">
        {fact("Next run", next_at === undefined ? "paused" : bothTimes(next_at, timezone))}
        {fact("Times", <code>{`${cron} ${timezone}`}</code>)}
        {fact("Servers", server_id === undefined ? selectedBy(selector ?? {}) : <ServerOf id={server_id} />)}
        {source === "blueprint" && fact("Source", `blueprint ${selector?.blueprint_id}`)}
        {fact("Steps", <div class="labels">{steps.map((step) => label(stepText(step)))}</div>)}
        {last_run !== undefined &&
          fact(
            "Last run",
            <span class="across">
              {status(last_run.state, runColours[last_run.state])}
              <time dateTime={last_run.due_at}>{dateTime(last_run.due_at)}</time>
            </span>
          )}
      </dl>
      <div>
        {action({
          text: isOpen ? "Hide the runs" : "Show the runs",
          class: "link",
          onClick: () => setOpen(!isOpen)
        })}
      </div>
      {isOpen && <ScheduleRuns id={id} again={tick} onChanged={onChanged} />}
    </article>
  )
}

/** The schedules, newest first, with their next times and runs. */
export const SchedulesPage = (): View => {
  const { again, all, more, reply, tick } = useNewest<Schedule>("/api/schedules", EVERY)
  const create = () =>
    action({
      text: "New schedule",
      icon: "plus",
      class: "primary",
      whyNot: whyNot("schedules"),
      onClick: () => showSchedule(again)
    })
  return (
    <div>
      {pageHead(
        "Schedules",
        "Steps that servers go through at fixed times",
        <span class="grow" />,
        all.length > 0 && create()
      )}
      {drawReply(reply, "Loading the schedules", () =>
        all.length === 0 ? (
          empty(
            "clock",
            "No schedule yet",
            "A schedule backs up servers each night, for example, or restarts them after a warning to their players.",
            create()
          )
        ) : (
          <div class="stack schedules">
            {all.map((schedule) => (
              <ScheduleCard key={schedule.id} schedule={schedule} tick={tick} onChanged={again} />
            ))}
          </div>
        )
      )}
      {more !== undefined && action({ text: "Show more", onClick: more })}
    </div>
  )
}
