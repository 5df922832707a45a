import { button, code, div, h2, p, section, type View } from "../../dom/el.ts"
import { copySecret } from "../../parts/parts.ts"

/** A secret that the service shows once; it stays on the page until the reader closes it. */
export const Secret = (props: {
  readonly title: string
  readonly secret: string
  readonly onClose: () => void
}): View =>
  section(
    { class: "card secret", "aria-label": props.title },
    div(
      {},
      h2({}, props.title),
      p({ class: "muted" }, "Copy it now. The service stores no copy that it could show again.")
    ),
    code({}, props.secret),
    copySecret(props.secret),
    button({ type: "button", onClick: props.onClose }, "I have stored it")
  )
