import { signal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { type Reply, request } from "../api/http.ts"
import type { Power } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { counted } from "../dom/format.ts"
import { icon } from "../dom/icons.tsx"
import { tell } from "../state/notices.ts"
import { route } from "../state/router.ts"
import { titleOf } from "../state/rows.ts"
import { rows } from "../state/servers.ts"
import type { MenuItem } from "./Menu.tsx"
import { action } from "./parts.tsx"

const opened = signal<View | null>(null)

/** Opens a {@link Dialog} or {@link FormDialog}, which replaces an open one. */
export const openDialog = (dialog: View): void => {
  opened.value = dialog
}

export const closeDialog = (): void => {
  opened.value = null
}

// The Back button of the browser, too.
route.subscribe(closeDialog)

export const Dialogs = (): View | null => opened.value

/** A modal dialog; the browser keeps the focus in it, and Escape closes it. The first field of a form has the focus at first. */
export const Dialog = (props: {
  readonly title: string
  readonly class?: string
  readonly children?: ComponentChildren
}): View => {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const before = document.activeElement
    ref.current?.showModal()
    ref.current?.querySelector<HTMLElement>(".field :is(input, select, textarea)")?.focus()
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={ref}
      class={`dialog ${props.class ?? ""}`}
      aria-labelledby={id}
      onClose={closeDialog}
      onClick={(event: MouseEvent) => {
        if (event.target === ref.current) closeDialog()
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={id}>{props.title}</h2>
          <button class="ghost square" aria-label="Close" onClick={closeDialog}>
            {icon("close")}
          </button>
        </div>
        {props.children}
      </div>
    </dialog>
  )
}

/** A dialog with a form. Enter submits it; why it cannot be sent and a refusal are shown in it, and success closes it. */
export const FormDialog = <A,>(props: {
  readonly title: string
  readonly button: string
  readonly whyNot?: string | undefined
  readonly onSubmit: () => Promise<Reply<A>>
  readonly onDone: (body: A) => void
  readonly class?: string
  readonly children?: ComponentChildren
}): View => {
  const { button, whyNot } = props
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const submit = async (event: Event) => {
    event.preventDefault()
    if (isBusy || whyNot !== undefined) return
    setBusy(true)
    const reply = await props.onSubmit()
    setBusy(false)
    if (!reply.ok) return setProblem(`${reply.detail} ${reply.hint}`)
    closeDialog()
    props.onDone(reply.body)
  }
  return (
    <Dialog title={props.title} class={props.class ?? ""}>
      <form class="stack dialog-form" onSubmit={(event: Event) => void submit(event)}>
        {props.children}
        {problem !== "" && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <div class="dialog-actions">
          <span class="muted grow" role="status">
            {whyNot}
          </span>
          {action({ text: "Cancel", onClick: closeDialog })}
          {action({ text: button, class: "primary", whyNot, isBusy })}
        </div>
      </form>
    </Dialog>
  )
}

/** A button that closes the dialog and does something, and one that only closes it. */
export const dialogActions = (
  button: Parameters<typeof action>[0] & { readonly onClick: () => void },
  cancel = "Cancel"
): View => (
  <div class="dialog-actions">
    {action({ text: cancel, onClick: closeDialog })}
    {action({
      ...button,
      onClick: () => {
        closeDialog()
        button.onClick()
      }
    })}
  </div>
)

export const confirm = (title: string, text: string, button: string, onConfirm: () => void): void =>
  openDialog(
    <Dialog title={title}>
      <p>{text}</p>
      {dialogActions({ text: button, class: "danger", onClick: onConfirm })}
    </Dialog>
  )

interface Removal {
  readonly verb: "Delete" | "Revoke"
  readonly name: string
  readonly text: string
  readonly path: string
  readonly onEnded: () => void
  readonly whyNot?: string | undefined
}

/** Asks before something is deleted or revoked, does it, and shows the outcome. */
const confirmRemoval = (props: Removal): void => {
  const { name, verb } = props
  const done = `${verb}d`
  const remove = () =>
    tell(request("DELETE", props.path), `${done}: ${name}`, `${name} was not ${done.toLowerCase()}`)
  confirm(`${verb} ${name}?`, props.text, `${verb} ${name}`, () => void remove().then(props.onEnded))
}

export const removalItem = (removal: Removal): MenuItem => ({
  text: `${removal.verb}…`,
  whyNot: removal.whyNot,
  isDangerous: true,
  onChoose: () => confirmRemoval(removal)
})

export const removalButton = (removal: Removal, text = `${removal.verb}…`): View =>
  action({
    text,
    class: "ghost is-dangerous",
    whyNot: removal.whyNot,
    onClick: () => confirmRemoval(removal)
  })

/** Asks before a stop or kill of servers that are not saved; else acts at once. */
export const askBeforeEnd = (ids: ReadonlyArray<string>, action: Power, onConfirm: () => void): void => {
  const ending = ids.flatMap((id) => {
    const row = rows.get(id)
    return row === undefined || row.save !== false || row.status === "offline" ? [] : [titleOf(row)]
  })
  const [first] = ending
  if ((action !== "stop" && action !== "kill") || first === undefined) {
    onConfirm()
    return
  }
  const which = ending.length === 1 ? "is" : `and ${counted(ending.length - 1, "other")} are`
  const verb = action === "stop" ? "Stop" : "Kill"
  confirm(
    `${verb} ${ids.length === 1 ? first : counted(ids.length, "server")}?`,
    `${first} ${which} not saved. Once stopped, such a server is deleted with its files. This cannot be undone.`,
    `${verb} and delete`,
    onConfirm
  )
}
