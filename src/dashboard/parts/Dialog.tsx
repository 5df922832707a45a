import { signal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { type Reply, request } from "../api/http.ts"
import type { View } from "../dom/el.ts"
import { icon } from "../dom/icons.tsx"
import { tell } from "../state/notices.ts"
import { action } from "./parts.tsx"

/** Draws the open dialog, if any. */
const opened = signal<((close: () => void) => ComponentChildren) | undefined>(undefined)

/** Opens a dialog, which replaces an open one. */
export const openDialog = (draw: (close: () => void) => ComponentChildren): void => {
  opened.value = draw
}

export const closeDialog = (): void => {
  opened.value = undefined
}

export const Dialogs = (): ComponentChildren => opened.value?.(closeDialog) ?? null

/** A modal dialog; the browser keeps the focus in it, and Escape closes it. */
export const Dialog = (props: {
  readonly title: string
  readonly onClose: () => void
  readonly class?: string
  readonly children?: ComponentChildren
}): View => {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const before = document.activeElement
    ref.current?.showModal()
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={ref}
      class={`dialog ${props.class ?? ""}`}
      aria-labelledby={id}
      onClose={props.onClose}
      onClick={(event: MouseEvent) => {
        if (event.target === ref.current) props.onClose()
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={id}>{props.title}</h2>
          <button class="ghost square" aria-label="Close" onClick={props.onClose}>
            {icon("close")}
          </button>
        </div>
        {props.children}
      </div>
    </dialog>
  )
}

/** Opens a dialog with content that is drawn once. */
export const show = (
  title: string,
  content: (close: () => void) => ComponentChildren,
  className = ""
): void =>
  openDialog((close) => <Dialog title={title} onClose={close} class={className} children={content(close)} />)

/** A dialog with a form. Enter submits it; a refusal is shown in it, and success closes it. */
export const FormDialog = <A,>(props: {
  readonly title: string
  readonly button: string
  readonly whyNot?: string | undefined
  readonly onSubmit: () => Promise<Reply<A>>
  readonly onDone: (body: A) => void
  readonly onClose: () => void
  readonly class?: string
  readonly children?: ComponentChildren
}): View => {
  const { button, onClose, whyNot } = props
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const submit = async (event: Event) => {
    event.preventDefault()
    if (isBusy || whyNot !== undefined) return
    setBusy(true)
    const reply = await props.onSubmit()
    setBusy(false)
    if (!reply.ok) return setProblem(`${reply.detail} ${reply.hint}`)
    onClose()
    props.onDone(reply.body)
  }
  return (
    <Dialog title={props.title} onClose={onClose} class={props.class ?? ""}>
      <form class="stack dialog-form" onSubmit={(event: Event) => void submit(event)}>
        {props.children}
        {problem !== "" && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <div class="dialog-actions">
          {action({ text: "Cancel", onClick: onClose })}
          {action({ text: button, class: "primary", whyNot, isBusy })}
        </div>
      </form>
    </Dialog>
  )
}

export const dialogActions = (
  close: () => void,
  button: Parameters<typeof action>[0] & { readonly onClick: () => void },
  cancel = "Cancel"
): View => (
  <div class="dialog-actions">
    {action({ text: cancel, onClick: close })}
    {action({
      ...button,
      onClick: () => {
        close()
        button.onClick()
      }
    })}
  </div>
)

export const confirm = (title: string, text: string, button: string, onConfirm: () => void): void =>
  show(title, (close) => [
    <p>{text}</p>,
    dialogActions(close, { text: button, class: "danger", onClick: onConfirm })
  ])

/** Asks before something is deleted or revoked, does it, and shows the outcome. */
export const confirmRemoval = (props: {
  readonly verb: "Delete" | "Revoke"
  readonly name: string
  readonly text: string
  readonly path: string
  readonly onEnded: () => void
}): void => {
  const { name, verb } = props
  const done = `${verb}d`
  const remove = () =>
    tell(request("DELETE", props.path), `${done}: ${name}`, `${name} was not ${done.toLowerCase()}`)
  confirm(`${verb} ${name}?`, props.text, `${verb} ${name}`, () => void remove().then(props.onEnded))
}
