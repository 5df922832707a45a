import type { View } from "../../dom/el.ts"
import { bytes, counted, percent } from "../../dom/format.ts"
import { action } from "../../parts/parts.tsx"
import {
  cancel,
  decide,
  isPaused,
  pause,
  progress,
  resume,
  retry,
  type Upload,
  type UploadState,
  uploads
} from "./uploads.ts"

/** Uploads that the list shows. */
const MOST = 50

const order: Readonly<Record<UploadState, number>> = {
  failed: 0,
  exists: 1,
  sending: 2,
  waiting: 3,
  stored: 4
}

const stateText = ({ file, problem, sent, state }: Upload): string => {
  if (state === "sending") return file.size === 0 ? "0 B" : percent(Math.min(1, sent / file.size))
  return state === "failed" ? problem : state === "exists" ? "exists already" : state
}

const row = (upload: Upload): View => (
  <li key={upload.path} class={`is-${upload.state}`}>
    <bdi class="upload-path">{upload.path}</bdi>
    <span class={upload.state === "failed" ? "problem small" : "muted small"}>{stateText(upload)}</span>
    {upload.state !== "stored" && (
      <button
        type="button"
        class="link"
        aria-label={`Cancel ${upload.path}`}
        onClick={() => cancel([upload])}
      >
        Cancel
      </button>
    )}
  </li>
)

/** The uploads to a server: progress, the question whether files are replaced, and failures. */
export const UploadList = ({ id }: { readonly id: string }): View | null => {
  progress.value
  const its = [...uploads].filter((upload) => upload.id === id)
  if (its.length === 0) return null
  const number = (state: UploadState) => its.filter((upload) => upload.state === state).length
  const total = its.reduce((sum, { file }) => sum + file.size, 0)
  const sent = its.reduce((sum, { file, sent, state }) => sum + (state === "stored" ? file.size : sent), 0)
  const [fine, existing, failures] = [number("stored"), number("exists"), number("failed")]
  const isActive = number("sending") + number("waiting") > 0
  const shown = its
    .filter(({ state }) => state !== "stored")
    .toSorted((one, other) => order[one.state] - order[other.state])
  return (
    <section class="stack card panel uploads" aria-label="Uploads">
      <div class="across file-tools">
        <span role="status">{`${fine} of ${counted(its.length, "file")} stored`}</span>
        <span class="muted">{`${bytes(sent)} of ${bytes(total)}`}</span>
        <span class="grow" />
        {failures > 0 && action({ text: `Retry ${failures} failed`, onClick: retry })}
        {isActive &&
          (isPaused.value
            ? action({ text: "Resume", icon: "play", onClick: resume })
            : action({ text: "Pause", icon: "pause", onClick: pause }))}
        {action({
          text: fine < its.length ? "Cancel all" : "Close",
          class: "ghost",
          onClick: () => cancel(its)
        })}
      </div>
      <progress
        aria-label={`${bytes(sent)} of ${bytes(total)} uploaded`}
        value={total === 0 ? fine : sent}
        max={total === 0 ? its.length : total}
      />
      {isPaused.value && <p class="note">Paused. Files under way are sent again from their beginning.</p>}
      {existing > 0 && (
        <div class="across attention" role="alert">
          <span>{`${counted(existing, "file")} exist${existing === 1 ? "s" : ""} already.`}</span>
          {action({ text: "Replace all", class: "link", onClick: () => decide(true) })}
          {action({ text: "Skip all", class: "link", onClick: () => decide(false) })}
        </div>
      )}
      {shown.length > 0 && (
        <ul class="upload-rows" tabIndex={0} aria-label="Files that are not stored yet">
          {shown.slice(0, MOST).map(row)}
          {shown.length > MOST && <li class="muted">{`and ${counted(shown.length - MOST, "other")}`}</li>}
        </ul>
      )}
    </section>
  )
}
