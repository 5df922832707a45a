/** Small parts that several pages show. */
import type { ComponentChildren } from "preact"
import type { Reply } from "../api/http.ts"
import { classes, onText, type View } from "../dom/el.ts"
import { count } from "../dom/format.ts"
import { type IconName, icon } from "../dom/icons.tsx"
import { listAddress } from "../state/filter.ts"
import { announce, failed } from "../state/notices.ts"
import { follow } from "../state/router.ts"

export const status = (text: string, className = text): View => (
  <span class={classes("status", `is-${className}`)}>
    <span class="dot" aria-hidden="true" />
    {text}
  </span>
)

/** Copies over the selection: pages over plain HTTP have no clipboard. */
const copySelected = (text: string): boolean => {
  const area = document.createElement("textarea")
  area.value = text
  area.className = "unseen"
  document.body.append(area)
  area.select()
  const hasCopied = document.execCommand("copy")
  area.remove()
  return hasCopied
}

const copyText = async (text: string): Promise<boolean> => {
  const { clipboard } = navigator as { readonly clipboard?: Clipboard }
  if (clipboard === undefined) return copySelected(text)
  return clipboard.writeText(text).then(
    () => true,
    () => copySelected(text)
  )
}

/** Copies a text; `name` is what assistive technology reads out. */
const copyOnClick =
  (text: string, name: string) =>
  (event: MouseEvent): void => {
    event.stopPropagation()
    const { currentTarget } = event
    void copyText(text).then((hasCopied) => {
      if (!hasCopied) return failed("Not copied", { detail: "The browser did not allow it.", hint: "" })
      announce(`Copied ${name}`)
      if (!(currentTarget instanceof HTMLElement)) return
      currentTarget.classList.add("is-copied")
      setTimeout(() => currentTarget.classList.remove("is-copied"), 1200)
    })
  }

export const copyable = (text: string, tabIndex = 0): View => (
  <button
    type="button"
    class="copyable"
    tabIndex={tabIndex}
    title="Copy"
    aria-label={`Copy ${text}`}
    onClick={copyOnClick(text, text)}
  >
    <code>{text}</code>
    {icon("copy")}
    {icon("check")}
  </button>
)

/** A button that copies a secret, which is not read out. */
export const copyButton = (secret: string, name: string, kind = "ghost"): View => (
  <button
    type="button"
    class={`${kind} copy`}
    aria-label={`Copy ${name}`}
    onClick={copyOnClick(secret, name)}
  >
    {icon("copy")}
    {icon("check")}
    <span>Copy</span>
  </button>
)

/** A secret that the service shows once; it stays on the page until the reader closes it. */
export const shownSecret = (title: string, secret: string, onClose: () => void): View => (
  <section class="across card secret" aria-label={title}>
    <div>
      <h2>{title}</h2>
      <p class="muted">Copy it now. The service stores no copy that it could show again.</p>
    </div>
    <code>{secret}</code>
    {copyButton(secret, "the secret", "primary")}
    <button type="button" onClick={onClose}>
      I have saved it
    </button>
  </section>
)

/** A page or panel without content: why, and what to do. */
export const empty = (
  name: IconName,
  title: string,
  text: ComponentChildren,
  ...actions: Array<ComponentChildren>
): View => (
  <div class="empty">
    <div class="empty-icon">{icon(name)}</div>
    <h2>{title}</h2>
    <p>{text}</p>
    {actions.length > 0 && <div class="empty-actions">{actions}</div>}
  </div>
)

/** The text of a part that is being read. */
export const waiting = (text: string): View => (
  <p class="muted" aria-busy="true">
    {text}
  </p>
)

/** Draws the body of a reply; before, the text `before`, or the reason of a refusal. */
export const drawReply = <A,>(
  reply: Reply<A> | undefined,
  before: string,
  draw: (body: A) => ComponentChildren,
  withHint = false
): ComponentChildren => {
  if (reply === undefined) return waiting(before)
  if (reply.ok) return draw(reply.body)
  return <p class="problem">{withHint ? `${reply.detail} ${reply.hint}` : reply.detail}</p>
}

/** The head of a list of things that are made here: their number, further parts, and the button. */
export const adminHead = (
  number: string,
  button: string,
  onCreate: () => void,
  ...more: Array<ComponentChildren>
): View => (
  <div class="across admin-head">
    <span class="muted">{number}</span>
    {more}
    <span class="grow" />
    {action({ text: button, icon: "plus", class: "primary", onClick: onCreate })}
  </div>
)

/** A table with the names of its columns; a column of actions has none. */
export const listing = (columns: ReadonlyArray<string>, rows: ComponentChildren, className = ""): View => (
  <table class={classes("card listing", className)}>
    <thead>
      <tr>
        {columns.map((text) =>
          text === "" ? (
            <td key="actions" />
          ) : (
            <th key={text} scope="col">
              {text}
            </th>
          )
        )}
      </tr>
    </thead>
    <tbody>{rows}</tbody>
  </table>
)

/** The mark of a server that is not saved. */
export const notSaved = (): View => (
  <span class="tag" title="The server is deleted with its files once it has stopped.">
    not saved
  </span>
)

export const label = (text: string): View => (
  <span key={text} class="label" title={text}>
    {text}
  </span>
)

export const backToList = (): ComponentChildren => [
  <a class="back" href={listAddress()} onClick={follow} aria-label="Back to the list of servers">
    Servers
  </a>,
  <span class="crumb" aria-hidden="true">
    /
  </span>
]

export const fact = (name: string, value: ComponentChildren): View => (
  <div key={name}>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
)

/** The choices of a filter with the numbers of what they show; `status`: the status whose colour a choice has. */
export const chips = <A,>(
  props: {
    readonly name: string
    readonly chosen: A
    readonly choices: ReadonlyArray<readonly [value: A, text: string, number: number, status?: string]>
    readonly onChoose: (value: A) => void
  },
  ...more: Array<ComponentChildren>
): View => (
  <div class="across chips" role="group" aria-label={props.name}>
    {props.choices.map(([value, text, number, status]) => (
      <button
        key={text}
        type="button"
        class={classes("chip", status !== undefined && `is-${status}`, props.chosen === value && "is-chosen")}
        aria-pressed={props.chosen === value}
        onClick={() => props.onChoose(value)}
      >
        {status !== undefined && <span class="dot" aria-hidden="true" />}
        <span>{text}</span>
        <span class="chip-count">{count(number)}</span>
      </button>
    ))}
    {more}
  </div>
)

/** The head of a page: its title, a line about it, and further parts. */
export const pageHead = (title: string, about: string, ...more: Array<ComponentChildren>): View => (
  <div class="across page-head">
    <h1>{title}</h1>
    {about !== "" && <span class="muted">{about}</span>}
    {more}
  </div>
)

/** A field for the words of a search. */
export const searchField = (
  name: string,
  input: {
    readonly value: string
    readonly onWords: (text: string) => void
    readonly id?: string
    readonly placeholder?: string
    readonly onKeyDown?: (event: KeyboardEvent) => void
  },
  ...more: Array<ComponentChildren>
): View => {
  const { onWords, ...rest } = input
  return (
    <label class="search">
      {icon("search")}
      <span class="unseen">{name}</span>
      <input
        type="search"
        placeholder={name}
        autocomplete="off"
        spellcheck={false}
        {...rest}
        onInput={onText(onWords)}
      />
      {more}
    </label>
  )
}

/** Links to the parts of a page, without steps back in the browser. */
export const tabList = (
  name: string,
  all: ReadonlyArray<{ readonly text: string; readonly address: string; readonly isShown: boolean }>
): View => (
  <nav class="tabs" aria-label={name}>
    {all.map(({ address, isShown, text }) => (
      <a
        key={text}
        href={address}
        class={classes(isShown && "is-shown")}
        aria-current={isShown ? "true" : undefined}
        onClick={(event: MouseEvent) => follow(event, { replace: true })}
      >
        {text}
      </a>
    ))}
  </nav>
)

/** A button that says why it cannot be used. */
export const action = (
  props: {
    readonly text: string
    /** Absent if the button submits its form, as Enter does. */
    readonly onClick?: () => void
    readonly icon?: IconName
    readonly class?: string
    readonly whyNot?: string | undefined
    readonly isBusy?: boolean
  },
  ...children: Array<ComponentChildren>
): View => (
  <button
    type={props.onClick === undefined ? "submit" : "button"}
    class={classes(props.class, props.isBusy === true && "is-busy")}
    aria-disabled={props.whyNot !== undefined || props.isBusy === true}
    title={props.whyNot}
    onClick={() => {
      if (props.whyNot === undefined && props.isBusy !== true) props.onClick?.()
    }}
  >
    {props.icon !== undefined && icon(props.icon)}
    <span>{props.text}</span>
    {children}
  </button>
)

/** A share as a bar; `mark`: another share, as a line. */
export const bar = (props: {
  readonly label: string
  readonly share: number
  readonly text: string
  readonly mark?: number
}): View => {
  const share = Math.min(1, Math.max(0, props.share))
  return (
    <div class="meter">
      <span class="meter-label">{props.label}</span>
      <div
        class={classes("bar", share > 0.9 && "is-full", share > 0.75 && share <= 0.9 && "is-high")}
        role="meter"
        aria-label={props.label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={props.text}
      >
        <div class="bar-fill" style={{ width: `${share * 100}%` }} />
        {props.mark !== undefined && (
          <div class="bar-mark" style={{ left: `${Math.min(1, props.mark) * 100}%` }} />
        )}
      </div>
      <span class="meter-text">{props.text}</span>
    </div>
  )
}
