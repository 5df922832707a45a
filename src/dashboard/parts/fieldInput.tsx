import { useId } from "preact/hooks"
import { classes, onText, type View } from "../dom/el.ts"

/** `pairs`: one `name=value` a line; `configs`: patches of config files as JSON. */
export type FieldKind = "text" | "number" | "pairs" | "configs" | "choice"

/** Returns the number that a text is, in the unit of the API; any other text as it is: the service says why it refuses it. */
export const numberIn = (text: string, unit = 1): number | string => {
  const number = Number(text)
  return Number.isFinite(number) ? number * unit : text
}

/** A labelled field of a form. */
export const FieldInput = (props: {
  readonly label: string
  readonly hint?: string | undefined
  /** Why the value is not accepted, in place of the hint. */
  readonly problem?: string | undefined
  readonly kind: FieldKind
  readonly choices?: ReadonlyArray<readonly [string, string]> | undefined
  readonly value: string
  readonly placeholder?: string
  readonly isReadOnly?: boolean
  readonly onChange: (text: string) => void
}): View => {
  const id = useId()
  const changed = onText(props.onChange)
  const common = {
    id,
    value: props.value,
    "aria-describedby": `${id}-hint`,
    "aria-invalid": props.problem !== undefined
  }
  const control = () => {
    switch (props.kind) {
      case "choice":
        return (
          <select {...common} disabled={props.isReadOnly === true} onChange={changed}>
            {(props.choices ?? []).map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        )
      case "pairs":
      case "configs":
        return (
          <textarea
            {...common}
            readOnly={props.isReadOnly === true}
            rows={3}
            spellcheck={false}
            onInput={changed}
          />
        )
      default:
        return (
          <input
            {...common}
            readOnly={props.isReadOnly === true}
            {...(props.kind === "number" && { inputMode: "decimal" as const })}
            placeholder={props.placeholder}
            autocomplete="off"
            spellcheck={false}
            onInput={changed}
          />
        )
    }
  }
  return (
    <div class={classes("field", `is-${props.kind}`)}>
      <label for={id}>{props.label}</label>
      {control()}
      <span class={props.problem === undefined ? "hint" : "problem small"} id={`${id}-hint`}>
        {props.problem ?? props.hint ?? ""}
      </span>
    </div>
  )
}
