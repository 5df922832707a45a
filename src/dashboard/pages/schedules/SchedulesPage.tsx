import { useState } from "preact/hooks"
import { request, segment, useGet, useTick } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Schedule } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { dateTime } from "../../dom/format.ts"
import { stepText } from "../../dom/stepText.ts"
import { confirmRemoval } from "../../parts/Dialog.tsx"
import { serverLink } from "../../parts/eventList.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import { action, drawReply, empty, fact, label, pageHead, status } from "../../parts/parts.tsx"
import { tell } from "../../state/notices.ts"
import { nameOf } from "../../state/servers.ts"
import { selectedBy } from "../rollouts/RolloutCard.tsx"
import { bothTimes } from "./bothTimes.tsx"
import { runColours, ScheduleRuns } from "./ScheduleRuns.tsx"
import { showSchedule } from "./scheduleDialog.tsx"

const EVERY = 5000
const PAGE = 20
const MOST = 100

const pathOf = ({ id }: Schedule): string => `/api/schedules/${segment(id)}`

/** Returns why the caller cannot change a schedule, if it cannot: the file of a blueprint does. */
const whyUnchanged = ({ selector, source }: Schedule): string | undefined =>
  whyNot("schedules") ??
  (source === "blueprint" ? `The file of the blueprint ${selector?.blueprint_id} has it.` : undefined)

const itemsOf = (schedule: Schedule, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const lacks = whyUnchanged(schedule)
  return [
    { text: "Change…", whyNot: lacks, onChoose: () => showSchedule(onChanged, schedule) },
    {
      text: "Delete…",
      whyNot: lacks,
      isDangerous: true,
      onChoose: () =>
        confirmRemoval({
          verb: "Delete",
          name: schedule.name,
          text: "It runs no more, and the list of its runs is deleted.",
          path: pathOf(schedule),
          onEnded: onChanged
        })
    }
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

const ScheduleCard = (props: {
  readonly schedule: Schedule
  readonly tick: number
  readonly onChanged: () => void
}): View => {
  const { onChanged, schedule, tick } = props
  const { cron, enabled, last_run, name, next_at, selector, server_id, source, steps, timezone } = schedule
  const [isOpen, setOpen] = useState(false)
  return (
    <article class="stack card schedule" aria-label={`Schedule ${name}`}>
      <div class="across schedule-head">
        <h2>{name}</h2>
        {!enabled && status("paused", "paused")}
        <span class="grow" />
        {Actions(schedule, onChanged)}
      </div>
      <dl class="facts">
        {fact("Next run", next_at === undefined ? "paused" : bothTimes(next_at, timezone))}
        {fact("Times", <code>{`${cron} ${timezone}`}</code>)}
        {fact(
          "Servers",
          server_id === undefined ? selectedBy(selector ?? {}) : serverLink(server_id, nameOf(server_id))
        )}
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
      {isOpen && <ScheduleRuns id={schedule.id} again={tick} onChanged={onChanged} />}
    </article>
  )
}

/** The schedules, newest first, with their next times and runs. */
export const SchedulesPage = (): View => {
  const [limit, setLimit] = useState(PAGE)
  const [tick, again] = useTick(EVERY)
  const reply = useGet<ReadonlyArray<Schedule>>(`/api/schedules?limit=${limit}`, tick)
  const all = reply?.ok === true ? reply.body : []
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
            "A schedule restarts servers each night, for example, and warns their players before.",
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
      {all.length >= limit && limit < MOST && action({ text: "Show more", onClick: () => setLimit(MOST) })}
    </div>
  )
}
