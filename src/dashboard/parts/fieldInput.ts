import { useId } from "preact/hooks"
import { div, input, label, option, select, span, textarea, type View } from "../dom/el.ts"

/** A labelled field of a form. */
export const FieldInput = (props: {
  readonly label: string
  readonly hint?: string | undefined
  readonly kind: "text" | "number" | "pairs" | "choice"
  readonly choices?: ReadonlyArray<readonly [string, string]> | undefined
  readonly value: string
  readonly placeholder?: string
  readonly isReadOnly?: boolean
  readonly onChange: (text: string) => void
}): View => {
  const id = useId()
  const changed = ({
    currentTarget
  }: {
    readonly currentTarget: HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement
  }) => {
    if (props.kind === "number") currentTarget.value = currentTarget.value.replace(/[^\d.]/g, "")
    props.onChange(currentTarget.value)
  }
  const common = { id, value: props.value, "aria-describedby": `${id}-hint` }
  const control = () => {
    switch (props.kind) {
      case "choice":
        return select(
          { ...common, disabled: props.isReadOnly === true, onChange: changed },
          (props.choices ?? []).map(([value, text]) => option({ value, key: value }, text))
        )
      case "pairs":
        return textarea({
          ...common,
          readOnly: props.isReadOnly === true,
          rows: 3,
          spellcheck: false,
          onInput: changed
        })
      default:
        return input({
          ...common,
          readOnly: props.isReadOnly === true,
          ...(props.kind === "number" && { inputMode: "decimal" as const }),
          placeholder: props.placeholder,
          autocomplete: "off",
          spellcheck: false,
          onInput: changed
        })
    }
  }
  return div(
    { class: "field" },
    label({ for: id }, props.label),
    control(),
    span({ class: "hint", id: `${id}-hint` }, props.hint ?? "")
  )
}
