import { useEffect, useRef } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import type { View } from "../../dom/el.ts"
import { bytes, counted, dateTime, percent } from "../../dom/format.ts"
import { action } from "../../parts/parts.tsx"
import { failed } from "../../state/notices.ts"
import { discard, isOf, type Unfinished, unfinished } from "./sending.ts"
import {
  cancel,
  continueWith,
  decide,
  findEarlier,
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
  uploaded: 4
}

const stateText = ({ file, problem, sent, state }: Upload): string => {
  const part = file.size === 0 ? "0 B" : percent(Math.min(1, sent / file.size))
  if (state === "sending") return problem === "" ? part : `${part}, ${problem}`
  if (state === "waiting" && sent > 0) return `stopped at ${part}`
  return state === "failed" ? problem : state === "exists" ? "exists already" : state
}

const row = (upload: Upload): View => (
  <li key={upload.path} class={`is-${upload.state}`}>
    <bdi class="upload-path">{legible(upload.path)}</bdi>
    <span class={upload.state === "failed" ? "problem small" : "muted small"}>{stateText(upload)}</span>
    {upload.state !== "uploaded" && (
      <button
        type="button"
        class="link"
        aria-label={`Cancel ${legible(upload.path)}`}
        onClick={() => cancel([upload])}
      >
        Cancel
      </button>
    )}
  </li>
)

/** The uploads that a load of the page has ended: the reader chooses their files again. */
const Earlier = ({ its }: { readonly its: ReadonlyArray<Unfinished> }): View => {
  const input = useRef<HTMLInputElement>(null)
  const wanted = useRef<Unfinished>(undefined)
  const choose = (upload: Unfinished) => {
    wanted.current = upload
    input.current?.click()
  }
  const use = (file: File | undefined) => {
    const upload = wanted.current
    if (file === undefined || upload === undefined) return
    if (isOf(file, upload)) return continueWith(upload, file)
    failed("Not continued", {
      detail: `${legible(file.name)} of ${bytes(file.size)} is another file, or has changed.`,
      hint: `Choose ${legible(upload.name)} of ${bytes(upload.size)}, changed ${dateTime(new Date(upload.modified).toISOString())}, or discard the upload.`
    })
  }
  return (
    <section class="stack card panel uploads" aria-label="Unfinished uploads">
      <input
        type="file"
        hidden
        ref={input}
        onChange={({ currentTarget }) => {
          use(currentTarget.files?.[0])
          currentTarget.value = ""
        }}
      />
      <p class="note">The page was loaded again. Choose the same files to continue their uploads.</p>
      <ul class="upload-rows" tabIndex={0} aria-label="Uploads that wait for their file">
        {its.map((upload) => (
          <li key={upload.upload}>
            <bdi class="upload-path">{legible(upload.path)}</bdi>
            <span class="muted small">{`stopped at ${bytes(upload.offset)} of ${bytes(upload.size)}`}</span>
            <button
              type="button"
              class="link"
              aria-label={`Choose the file to continue ${legible(upload.path)}`}
              onClick={() => choose(upload)}
            >
              Choose the file…
            </button>
            <button
              type="button"
              class="link"
              aria-label={`Discard the upload of ${legible(upload.path)}`}
              onClick={() => discard(upload)}
            >
              Discard
            </button>
          </li>
        ))}
      </ul>
    </section>
  )
}

/** The uploads to a server: those of earlier loads of the page, and those of this one. */
export const UploadList = ({ id }: { readonly id: string }): View => {
  useEffect(() => void findEarlier(id), [id])
  const its = unfinished.value.filter((upload) => upload.id === id)
  return (
    <>
      {its.length > 0 && <Earlier its={its} />}
      <Queue id={id} />
    </>
  )
}

/** The uploads of this load of the page: progress, the question whether files are replaced, and failures. */
const Queue = ({ id }: { readonly id: string }): View | null => {
  progress.value
  const its = [...uploads].filter((upload) => upload.id === id)
  if (its.length === 0) return null
  const number = (state: UploadState) => its.filter((upload) => upload.state === state).length
  const total = its.reduce((sum, { file }) => sum + file.size, 0)
  const sent = its.reduce((sum, { file, sent, state }) => sum + (state === "uploaded" ? file.size : sent), 0)
  const [fine, existing, failures] = [number("uploaded"), number("exists"), number("failed")]
  const isActive = number("sending") + number("waiting") > 0
  const hints = new Set(its.flatMap(({ hint, state }) => (state === "failed" && hint !== "" ? [hint] : [])))
  const shown = its
    .filter(({ state }) => state !== "uploaded")
    .toSorted((one, other) => order[one.state] - order[other.state])
  return (
    <section class="stack card panel uploads" aria-label="Uploads">
      <div class="across file-tools">
        <span role="status">{`${fine} of ${counted(its.length, "file")} uploaded`}</span>
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
      {isPaused.value && (
        <p class="note">
          Paused. Files from 16 MiB on continue where they are, smaller ones are sent again from their
          beginning.
        </p>
      )}
      {existing > 0 && (
        <div class="across attention" role="alert">
          <span>{`${counted(existing, "file")} exist${existing === 1 ? "s" : ""} already.`}</span>
          {action({ text: "Replace all", class: "link", onClick: () => decide(true) })}
          {action({ text: "Skip all", class: "link", onClick: () => decide(false) })}
        </div>
      )}
      {[...hints].map((hint) => (
        <p key={hint} class="note">
          {hint}
        </p>
      ))}
      {shown.length > 0 && (
        <ul class="upload-rows" tabIndex={0} aria-label="Files that are not uploaded yet">
          {shown.slice(0, MOST).map(row)}
          {shown.length > MOST && <li class="muted">{`and ${counted(shown.length - MOST, "other")}`}</li>}
        </ul>
      )}
    </section>
  )
}
