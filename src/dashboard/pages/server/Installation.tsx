import { useEffect, useState } from "preact/hooks"
import { get, segment } from "../../api/http.ts"
import type { InstallReport, InstallStep } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { percent, shortDuration } from "../../dom/format.ts"
import { onEvent } from "../../state/live.ts"

const meanings: Readonly<Record<InstallStep["name"], string>> = {
  place: "Choose a node",
  commit: "Store the server",
  pull: "Pull the image",
  script: "Run the install script",
  warmup: "Warm up the base",
  instance: "Make the files of the server",
  start: "Start for the first time"
}

/** Milliseconds between two readings while the installation runs. */
const EVERY = 1500

const Step = (step: InstallStep, failedAt: string | undefined, now: number): View => {
  const isDone = step.finished_at !== undefined
  const hasFailed = step.name === failedAt
  const taken = (isDone ? Date.parse(step.finished_at ?? "") : now) - Date.parse(step.started_at)
  return (
    <li key={step.name} class={classes("step", hasFailed ? "is-failed" : isDone ? "is-done" : "is-current")}>
      <span class="step-mark" aria-hidden="true">
        {hasFailed ? "!" : isDone ? "✓" : ""}
      </span>
      <span class="step-name">{meanings[step.name]}</span>
      <span class="unseen">{hasFailed ? ", failed" : isDone ? ", done" : ", in progress"}</span>
      {step.progress !== undefined && (
        <div
          class="bar step-bar"
          role="progressbar"
          aria-label="Progress"
          aria-valuenow={Math.round(step.progress * 100)}
          aria-valuemin={0}
          aria-valuemax={100}
        >
          <div class="bar-fill" style={{ width: percent(step.progress) }} />
        </div>
      )}
      <span class="muted">{shortDuration(Math.max(0, taken))}</span>
    </li>
  )
}

export const Installation = ({ id, readings }: { readonly id: string; readonly readings: number }): View => {
  const [report, setReport] = useState<InstallReport | undefined>(undefined)
  const [lines, setLines] = useState<ReadonlyArray<string>>([])
  const [problem, setProblem] = useState("")
  const [tick, setTick] = useState(0)
  const isRunning = report?.phase === "installing" || report?.phase === "pending"
  useEffect(() => {
    const stop = new AbortController()
    const path = `/api/servers/${segment(id)}/install`
    void get<InstallReport>(`${path}?script=false`, stop.signal).then((reply) => {
      if (reply.ok) setReport(reply.body)
      else if (!stop.signal.aborted) setProblem(reply.detail)
    })
    void get<{ readonly data: ReadonlyArray<string> }>(`${path}/logs?per_page=1000`, stop.signal).then(
      (reply) => {
        if (reply.ok) setLines(reply.body.data)
      }
    )
    return () => stop.abort()
  }, [id, readings, tick])
  useEffect(() => {
    const ended = onEvent(({ Data, Topic }) => {
      if (Topic === "install" && Data.server_id === id) setTick((before) => before + 1)
    })
    const timer = isRunning ? setInterval(() => setTick((before) => before + 1), EVERY) : undefined
    return () => {
      ended()
      clearInterval(timer)
    }
  }, [id, isRunning])
  if (report === undefined)
    return (
      <div class="stack card panel">
        <p class="muted">{problem === "" ? "Loading the installation" : problem}</p>
      </div>
    )
  const steps = report.steps ?? []
  const failedAt = report.phase === "failed" ? steps.at(-1)?.name : undefined
  return (
    <div class="stack card panel">
      {report.waiting_reason !== undefined && <p class="note">{`It waits: ${report.waiting_reason}`}</p>}
      {steps.length === 0 ? (
        <p class="muted">
          {report.phase === "pending" ? "The installation has not begun." : "No step is known."}
        </p>
      ) : (
        <ol class="steps" aria-live="polite">
          {steps.map((step) => Step(step, failedAt, Date.now()))}
        </ol>
      )}
      <h3>Output of the script</h3>
      {lines.length === 0 ? (
        <p class="muted">The script has written nothing.</p>
      ) : (
        <pre class="lines" tabIndex={0} aria-label="Output of the install script">
          {lines.join("\n")}
        </pre>
      )}
    </div>
  )
}
