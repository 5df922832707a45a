import type { ComponentChildren } from "preact"
import { request, segment, useGet } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { RunState, ScheduleRun } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted, dateTime, duration } from "../../dom/format.ts"
import { confirm } from "../../parts/Dialog.tsx"
import { serverLink } from "../../parts/eventList.tsx"
import { action, drawReply, status } from "../../parts/parts.tsx"
import { tell } from "../../state/notices.ts"
import { nameOf } from "../../state/servers.ts"

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

const countsOf = ({ servers }: ScheduleRun): string =>
  [...Map.groupBy(Object.values(servers), ({ state }) => state)]
    .map(([state, all]) => `${all.length} ${state}`)
    .join(", ")

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
