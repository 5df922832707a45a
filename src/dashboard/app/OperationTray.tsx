import { useEffect, useId, useRef, useState } from "preact/hooks"
import { whyNot } from "../api/session.ts"
import type { Operation } from "../api/types.ts"
import { classes, type View } from "../dom/el.ts"
import { ago, counted } from "../dom/format.ts"
import { icon } from "../dom/icons.tsx"
import { serverLink } from "../parts/eventList.tsx"
import { operationBar } from "../parts/operationBar.tsx"
import { action, status } from "../parts/parts.tsx"
import {
  cancelling,
  cancelOperation,
  figuresOf,
  isUnfinished,
  operations,
  rightOf,
  titleOf
} from "../state/operations.ts"
import { nameOf } from "../state/servers.ts"

const colours = {
  queued: "offline",
  running: "starting",
  done: "running",
  failed: "unknown",
  cancelled: "offline"
} as const

const row = (operation: Operation): View => {
  const { created_at, id, reason, server_id, state } = operation
  const name = nameOf(server_id)
  const isCancelling = cancelling.value.has(id)
  return (
    <li key={id} class={classes("tray-row", `is-${state}`)}>
      <div class="across">
        <span class="tray-title">{titleOf(operation)}</span>
        {serverLink(server_id, name)}
        <span class="grow" />
        {status(state, colours[state])}
      </div>
      {isUnfinished(operation) && operationBar(operation)}
      <div class="across muted small">
        <span>{figuresOf(operation)}</span>
        <span class="grow" />
        {isUnfinished(operation) && whyNot(rightOf(operation)) === undefined ? (
          <button
            type="button"
            class="link"
            aria-label={`Cancel: ${titleOf(operation)} of ${name}`}
            aria-disabled={isCancelling}
            onClick={() => !isCancelling && void cancelOperation(operation)}
          >
            {isCancelling ? "Cancelling…" : "Cancel"}
          </button>
        ) : (
          <time dateTime={created_at}>{ago(created_at, Date.now())}</time>
        )}
      </div>
      {reason !== undefined && <p class="problem small">{reason}</p>}
    </li>
  )
}

/** A button with the number of unfinished operations, which opens their list: Escape closes it. */
export const OperationTray = (): View | null => {
  const [isOpen, setOpen] = useState(false)
  const root = useRef<HTMLDivElement>(null)
  const panel = useRef<HTMLElement>(null)
  const id = useId()
  const all = operations.value
  const unfinished = all.filter(isUnfinished).length
  useEffect(() => {
    if (!isOpen) return
    panel.current?.focus()
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) !== true) setOpen(false)
    }
    document.addEventListener("pointerdown", outside)
    return () => document.removeEventListener("pointerdown", outside)
  }, [isOpen])
  if (whyNot("browse") !== undefined && whyNot("backups") !== undefined) return null
  const close = () => {
    setOpen(false)
    root.current?.querySelector<HTMLButtonElement>("[aria-expanded]")?.focus()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen || event.key !== "Escape") return
    close()
    event.stopPropagation()
  }
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <button
        type="button"
        class="ghost square"
        aria-expanded={isOpen}
        aria-controls={id}
        aria-label={`Operations: ${unfinished === 0 ? "none runs" : `${unfinished} unfinished`}`}
        title="Operations"
        onClick={() => setOpen(!isOpen)}
      >
        {icon("tray")}
        {unfinished > 0 && (
          <span class="tray-count" aria-hidden="true">
            {unfinished}
          </span>
        )}
      </button>
      {isOpen && (
        <section class="menu-list tray" id={id} ref={panel} tabIndex={-1} aria-label="Operations">
          <div class="across">
            <h2>Operations</h2>
            <span class="muted small">{counted(unfinished, "operation")} unfinished</span>
            <span class="grow" />
            {action({ text: "Close", class: "link", onClick: close })}
          </div>
          {all.length === 0 ? (
            <p class="muted">No operation in the last day.</p>
          ) : (
            <ul class="tray-rows" tabIndex={0} aria-label="Newest first">
              {all.map(row)}
            </ul>
          )}
        </section>
      )}
    </div>
  )
}
