import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { classes, type View } from "../dom/el.ts"
import { icon } from "../dom/icons.tsx"

export interface MenuItem {
  readonly text: string
  readonly onChoose: () => void
  readonly isDangerous?: boolean
  readonly whyNot?: string | undefined
}

/** A button that opens a list of actions: arrows move, Escape closes. */
export const Menu = (props: {
  readonly label: string
  readonly items: ReadonlyArray<MenuItem>
  readonly children?: ComponentChildren
  readonly class?: string
}): View => {
  const [isOpen, setOpen] = useState(false)
  const root = useRef<HTMLDivElement>(null)
  const list = useRef<HTMLDivElement>(null)
  const id = useId()
  const items = () => [...(root.current?.querySelectorAll<HTMLButtonElement>('[role="menuitem"]') ?? [])]
  /** Opens the list above the button, and to its right, if there is no room below and to its left. */
  const place = () => {
    const opened = list.current
    const button = root.current?.getBoundingClientRect()
    if (opened === null || button === undefined) return
    const { scrollMarginBottom, scrollMarginTop } = getComputedStyle(opened)
    const height = opened.offsetHeight
    const isBelow = button.bottom + height > innerHeight - Number.parseFloat(scrollMarginBottom)
    opened.classList.toggle("is-above", isBelow && button.top - height > Number.parseFloat(scrollMarginTop))
    opened.classList.toggle("is-right", button.right < opened.offsetWidth)
    opened.scrollIntoView({ block: "nearest" })
  }
  useEffect(() => {
    if (!isOpen) return
    place()
    items()[0]?.focus()
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) !== true) setOpen(false)
    }
    document.addEventListener("pointerdown", outside)
    return () => document.removeEventListener("pointerdown", outside)
  }, [isOpen])
  const close = () => {
    setOpen(false)
    root.current?.querySelector<HTMLButtonElement>("[aria-haspopup]")?.focus()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen) return
    const all = items()
    const focused = document.activeElement
    const at = focused instanceof HTMLButtonElement ? all.indexOf(focused) : -1
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
    if (step !== 0) all.at((at + step) % all.length)?.focus()
    else if (event.key === "Escape") close()
    else if (event.key === "Tab") setOpen(false)
    else return
    if (event.key !== "Tab") event.preventDefault()
    event.stopPropagation()
  }
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <button
        type="button"
        class={props.class ?? "square"}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={id}
        aria-label={props.children === undefined ? props.label : undefined}
        title={props.label}
        onClick={() => setOpen(!isOpen)}
      >
        {props.children ?? icon("dots")}
      </button>
      {isOpen && (
        <div class="menu-list" ref={list} id={id} role="menu" aria-label={props.label}>
          {props.items.map(({ isDangerous, onChoose, text, whyNot }) => (
            <button
              type="button"
              role="menuitem"
              class={classes("menu-item", isDangerous === true && "is-dangerous")}
              aria-disabled={whyNot !== undefined}
              title={whyNot}
              onClick={() => {
                if (whyNot !== undefined) return
                close()
                onChoose()
              }}
            >
              <span>{text}</span>
              {whyNot !== undefined && <span class="menu-why">{whyNot}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}
