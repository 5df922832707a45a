import { useId, useState } from "preact/hooks"
import { classes, onText, type View } from "../dom/el.ts"

/** `pairs`: one `name=value` a line; `configs`: patches of config files as JSON. */
export type FieldKind = "text" | "number" | "pairs" | "configs" | "choice"

/** Returns the number that a text is, in the unit of the API; any other text as it is: the service says why it refuses it. */
export const numberIn = (text: string, unit = 1): number | string => {
  const number = Number(text)
  return Number.isFinite(number) ? number * unit : text
}

interface FieldProps {
  readonly label: string
  readonly hint?: string | undefined
  readonly problem?: string | undefined
  readonly kind: FieldKind
  readonly choices?: ReadonlyArray<readonly [string, string]> | undefined
  readonly value: string
  readonly placeholder?: string
  readonly isReadOnly?: boolean
  readonly onChange: (text: string) => void
}

export const FieldInput = (props: FieldProps): View => {
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

/** The values of a form as typed, and its fields by their names. */
export const useForm = <Form extends object>(empty: Form | (() => Form)) => {
  const [values, setValues] = useState<Form>(empty)
  const set = (change: Partial<Form>): void => setValues((before) => ({ ...before, ...change }))
  const field = (
    name: keyof Form & string,
    label: string,
    hint = "",
    more: Partial<FieldProps> = {}
  ): View => (
    <FieldInput
      key={name}
      label={label}
      hint={hint}
      kind="text"
      value={String(values[name])}
      // A field of the form has texts; those of a choice are its values.
      onChange={(text) => set({ [name]: text } as Partial<Form>)}
      {...more}
    />
  )
  return { values, set, field }
}

export const checkField = (text: string, isChecked: boolean, onChange: () => void): View => (
  <label key={text} class="across check-field">
    <input type="checkbox" checked={isChecked} onChange={onChange} />
    <span>{text}</span>
  </label>
)

export const checks = <A extends string>(props: {
  readonly name: string
  readonly choices: ReadonlyArray<readonly [A, string]>
  readonly chosen: ReadonlyArray<A>
  readonly onChange: (chosen: ReadonlyArray<A>) => void
}): View => {
  const { choices, chosen, name, onChange } = props
  const toggled = (choice: A) =>
    chosen.includes(choice) ? chosen.filter((other) => other !== choice) : [...chosen, choice]
  return (
    <fieldset class="checks">
      <legend>{name}</legend>
      {choices.map(([choice, text]) =>
        checkField(text, chosen.includes(choice), () => onChange(toggled(choice)))
      )}
    </fieldset>
  )
}
