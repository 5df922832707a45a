import type { ComponentChildren } from "preact"
import { type Reply, segment, useLast, useTick } from "../../api/http.ts"
import type { InstallReport, InstallStep, Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { percent, shortDuration } from "../../dom/format.ts"
import { drawReply } from "../../parts/parts.tsx"

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
const IDLE = 30_000

interface Output {
  readonly data: ReadonlyArray<string>
}

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

const Steps = (report: InstallReport, output: Reply<Output> | undefined): ComponentChildren => {
  const { phase, steps = [] } = report
  const failedAt = phase === "failed" ? steps.at(-1)?.name : undefined
  const lines = output?.ok === true ? output.body.data : []
  return (
    <>
      {report.waiting_reason !== undefined && <p class="note">{`It waits: ${report.waiting_reason}`}</p>}
      {steps.length === 0 ? (
        <p class="muted">{phase === "pending" ? "The installation has not begun." : "No step is known."}</p>
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
    </>
  )
}

/** The steps of an installation and the output of its script, read again with each reading of the server. */
export const Installation = ({ id, reading }: { readonly id: string; readonly reading: Server }): View => {
  const isRunning = reading.install?.phase === "installing" || reading.install?.phase === "pending"
  const [tick] = useTick(isRunning ? EVERY : IDLE)
  const path = `/api/servers/${segment(id)}/install`
  const report = useLast<InstallReport>(`${path}?script=false`, reading, tick)
  const output = useLast<Output>(`${path}/logs?per_page=1000`, reading, tick)
  return (
    <div class="stack card panel">
      {drawReply(report, "Loading the installation", (body) => Steps(body, output))}
    </div>
  )
}
