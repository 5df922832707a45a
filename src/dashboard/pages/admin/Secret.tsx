import type { View } from "../../dom/el.ts"
import { copySecret } from "../../parts/parts.tsx"

/** A secret that the service shows once; it stays on the page until the reader closes it. */
export const Secret = (props: {
  readonly title: string
  readonly secret: string
  readonly onClose: () => void
}): View => (
  <section class="across card secret" aria-label={props.title}>
    <div>
      <h2>{props.title}</h2>
      <p class="muted">Copy it now. The service stores no copy that it could show again.</p>
    </div>
    <code>{props.secret}</code>
    {copySecret(props.secret)}
    <button type="button" onClick={props.onClose}>
      I have stored it
    </button>
  </section>
)
