import { request, segment } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Rollout, RolloutState, Selector } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { ago, count, counted, dateTime, duration, labelTexts } from "../../dom/format.ts"
import { confirm } from "../../parts/Dialog.tsx"
import { serverLink } from "../../parts/eventList.tsx"
import { action, copyable, label, status } from "../../parts/parts.tsx"
import { tell } from "../../state/notices.ts"
import { nameOf } from "../../state/servers.ts"

/** The words of a state, and the status whose colour it has. */
const states: Readonly<Record<RolloutState, readonly [string, string]>> = {
  planned: ["planned", "installing"],
  canary: ["canary", "starting"],
  running: ["running", "installing"],
  paused: ["paused", "paused"],
  done: ["done", "running"],
  failed: ["failed", "unknown"],
  rolled_back: ["rolled back", "stopping"],
  aborted: ["aborted", "offline"]
}

export const isUnfinished = ({ state }: Rollout): boolean =>
  state === "planned" || state === "canary" || state === "running" || state === "paused"

const pasts = { pause: "Paused", resume: "Resumed", abort: "Aborted" } as const

const change = async (id: string, verb: keyof typeof pasts, onChanged: () => void): Promise<void> => {
  const refused = `The rollout was not ${pasts[verb].toLowerCase()}`
  await tell(request("POST", `/api/rollouts/${segment(id)}/${verb}`), `${pasts[verb]}: the rollout`, refused)
  onChanged()
}

const Actions = (rollout: Rollout, onChanged: () => void): View => {
  const lacks = whyNot("change")
  const isPaused = rollout.state === "paused"
  const verb = isPaused ? "resume" : "pause"
  return (
    <div class="power">
      {action({
        text: isPaused ? "Resume" : "Pause",
        icon: isPaused ? "play" : "pause",
        class: isPaused ? "primary" : "",
        whyNot: lacks,
        onClick: () => void change(rollout.id, verb, onChanged)
      })}
      {action({
        text: "Abort…",
        icon: "stop",
        whyNot: lacks,
        onClick: () =>
          confirm(
            "Abort the rollout?",
            "Servers that have changed keep today’s definition, the others keep their earlier one.",
            "Abort",
            () => void change(rollout.id, "abort", onChanged)
          )
      })}
    </div>
  )
}

const partsOf = (rollout: Rollout): ReadonlyArray<readonly [string, string, number]> => {
  const { done: changed, failed_total, rolled_back = 0, total, under_way, waiting } = rollout
  const rest = total - changed - failed_total - under_way - waiting - rolled_back
  const parts = [
    ["done", "is-done", changed],
    ["under way", "is-current", under_way],
    ["at their next start", "is-waiting", waiting],
    ["rolled back", "is-back", rolled_back],
    ["failed", "is-failed", failed_total],
    [isUnfinished(rollout) ? "left" : "not changed", "is-left", Math.max(0, rest)]
  ] as const
  return parts.filter(([, , number]) => number > 0)
}

const Progress = (rollout: Rollout): View => {
  const parts = partsOf(rollout)
  const text = parts.map(([word, , number]) => `${count(number)} ${word}`).join(", ")
  return (
    <div class="progress">
      <div
        class="progress-bar"
        role="progressbar"
        aria-label="Progress"
        aria-valuemin={0}
        aria-valuemax={rollout.total}
        aria-valuenow={rollout.done}
        aria-valuetext={text}
      >
        {parts.map(([word, className, number]) => (
          <div key={word} class={className} style={{ flexGrow: number }} />
        ))}
      </div>
      <div class="progress-parts">
        {parts.map(([word, className, number]) => (
          <span key={word} class={className}>
            <span class="swatch" aria-hidden="true" />
            {`${count(number)} ${word}`}
          </span>
        ))}
      </div>
    </div>
  )
}

const Failures = ({ failed: first, failed_total }: Rollout): View => (
  <details class="rollout-failures" open={first.length <= 3}>
    <summary>
      {counted(failed_total, "server")}
      {" failed"}
    </summary>
    <ul>
      {first.map(({ reason, server_id }) => (
        <li key={server_id}>
          {serverLink(server_id, nameOf(server_id))}
          <span class="muted">{reason}</span>
        </li>
      ))}
      {failed_total > first.length && <li>{`and ${counted(failed_total - first.length, "other")}`}</li>}
    </ul>
  </details>
)

export const selectedBy = ({ blueprint_id, ids, labels, node_id, status }: Selector): string =>
  [
    blueprint_id !== undefined && `blueprint ${blueprint_id}`,
    node_id !== undefined && `node ${node_id}`,
    status !== undefined && `status ${status}`,
    ...labelTexts(labels).map((label) => `label ${label}`),
    ids !== undefined && "id"
  ]
    .filter((condition) => condition !== false)
    .join(", ")

const SHOWN = 5

const Origin = ({ created_by, revisions, selector }: Rollout): View => (
  <div class="rollout-origin">
    {revisions.slice(0, SHOWN).map(({ blueprint_id, from, servers, to }) => (
      <p key={`${blueprint_id} ${from.revision} ${to.revision}`}>
        {`${blueprint_id}: ${from.version} `}
        <code>{from.revision}</code>
        {` → ${to.version} `}
        <code>{to.revision}</code>
        <span class="muted">{counted(servers, "server")}</span>
      </p>
    ))}
    {revisions.length > SHOWN && (
      <p class="muted">{`and ${counted(revisions.length - SHOWN, "other change")}`}</p>
    )}
    <p class="muted">
      {`Selected by ${selectedBy(selector)}`}
      {created_by !== undefined && `, by the key ${created_by.name}`}
    </p>
  </div>
)

const restartWords = {
  now: "Restarts servers that are up",
  when_stopped: "Waits for the next start of servers that are up"
} as const
const failureWords = {
  pause: "Pauses after a failure",
  continue: "Continues after a failure",
  rollback: "Rolls all servers back after a failure"
} as const

const wordsOf = ({ canary, max_parallel, notify, on_failure, restart }: Rollout): ReadonlyArray<string> => [
  `${counted(max_parallel, "server")} at a time`,
  ...(canary === undefined ? [] : [`Paused after ${counted(canary, "server")}`]),
  restartWords[restart],
  ...(notify === undefined ? [] : [`Line before a restart: ${notify}`]),
  failureWords[on_failure]
]

export const RolloutCard = (props: {
  readonly rollout: Rollout
  readonly now: number
  readonly onChanged: () => void
}): View => {
  const { now, onChanged, rollout } = props
  const { created_at, failed_total, finished_at, id, reason, state, total } = rollout
  const [word, colour] = states[state]
  const isRollingBack = isUnfinished(rollout) && rollout.rolled_back !== undefined
  return (
    <article class="card rollout" aria-label={`Rollout ${id}`}>
      <div class="rollout-head">
        <h2>{counted(total, "server")}</h2>
        {status(isRollingBack ? "rolling back" : word, colour)}
        <time class="muted" dateTime={created_at} title={dateTime(created_at)}>
          {finished_at === undefined
            ? `began ${ago(created_at, now)}`
            : `${dateTime(finished_at)}, took ${duration(Date.parse(finished_at) - Date.parse(created_at))}`}
        </time>
        <span class="grow" />
        {isUnfinished(rollout) && Actions(rollout, onChanged)}
      </div>
      {reason !== undefined && <p class={classes("note", state === "failed" && "is-failed")}>{reason}</p>}
      {Progress(rollout)}
      {Origin(rollout)}
      {failed_total > 0 && Failures(rollout)}
      <div class="rollout-settings">
        {wordsOf(rollout).map(label)}
        <span class="grow" />
        {copyable(id)}
      </div>
    </article>
  )
}
