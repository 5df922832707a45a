/** Fields of forms: as typed, and as the body of a request. */
import { useId, useState } from "preact/hooks"
import type { Reply } from "../api/http.ts"
import type { Blueprint } from "../api/types.ts"
import { classes, onText, type View } from "../dom/el.ts"

/**
 * `secret`: a text that is not shown; `amount`: a number or a percentage; `names`: separated by spaces; `lines`: one text a line; `pairs`: one `name=value`
 * a line; `configs`: patches of config files as JSON; `flag`: a choice of `true` and `false`.
 */
export type FieldKind =
  | "text"
  | "secret"
  | "number"
  | "amount"
  | "names"
  | "lines"
  | "pairs"
  | "configs"
  | "choice"
  | "flag"

type Choices = ReadonlyArray<readonly [string, string]>

export interface Field {
  readonly kind: FieldKind
  /** The place of the value in the body: names with dots between them. */
  readonly path: string
  readonly label: string
  readonly hint: string
  /** Of a text: suggestions. */
  readonly choices?: Choices
  /** The number of units of the API in one unit of the field. */
  readonly unit?: number
}

export const field = (
  kind: FieldKind,
  path: string,
  label: string,
  hint = "",
  more: Pick<Field, "choices" | "unit"> = {}
): Field => ({ kind, path, label, hint, ...more })

/** A choice of blueprints; `none`: the text of the choice of none. */
export const blueprintField = (
  reply: Reply<ReadonlyArray<Blueprint>> | undefined,
  none: string,
  hint: string
): Field => {
  const all = reply?.ok === true ? reply.body : []
  const named = all.map(({ metadata: { id, name } }) => [id, name === id ? id : `${name} (${id})`] as const)
  return field("choice", "blueprint_id", "Blueprint", hint, { choices: [["", none], ...named] })
}

/** The texts of fields by their paths. */
export type Texts = Readonly<Record<string, string>>

/** Returns the number that a text is, in the unit of the API; any other text as it is: the service says why it refuses it. */
const numberIn = (text: string, unit = 1): number | string => {
  const number = Number(text)
  return Number.isFinite(number) ? number * unit : text
}

export const pairsText = (pairs: Readonly<Record<string, string>> = {}): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n")

/** Returns the lines of a text that are not empty. */
export const linesOf = (text = ""): ReadonlyArray<string> =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")

export const pairsOf = (text: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    linesOf(text).map((line) => {
      const at = line.indexOf("=")
      return at === -1 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()]
    })
  )

/** Reads the patches of config files by file, if the text has their form. */
export const configsOf = (text: string): Readonly<Record<string, object>> | undefined => {
  if (text.trim() === "") return {}
  try {
    const value: unknown = JSON.parse(text)
    const isObject = (one: unknown) => typeof one === "object" && one !== null && !Array.isArray(one)
    // Checked: an object of objects.
    return isObject(value) && Object.values(value as object).every(isObject)
      ? (value as Record<string, object>)
      : undefined
  } catch {
    return undefined
  }
}

/** Returns why a text is not accepted, if so. */
const problemOf = (kind: FieldKind, text: string): string | undefined => {
  if (kind === "number" && !/^(\d+\.?\d*|\.\d+)?$/.test(text.trim())) return "Enter a number, such as 512."
  return kind === "configs" && configsOf(text) === undefined
    ? 'Enter JSON such as {"server.properties": {"find": {"motd": "Hi"}}}.'
    : undefined
}

/** Returns the first reason for which a text is not accepted, if any. */
export const problemIn = (fields: ReadonlyArray<Field>, texts: Texts): string | undefined =>
  fields.map(({ kind, path }) => problemOf(kind, texts[path] ?? "")).find((one) => one !== undefined)

/** Returns the value of a text that is not empty. */
export const valueOf = ({ kind, unit }: Field, text: string): unknown => {
  switch (kind) {
    case "number":
    case "amount":
      return numberIn(text, unit)
    case "names":
      return text.split(/[\s,]+/).filter((word) => word !== "")
    case "lines":
      return linesOf(text)
    case "pairs":
      return pairsOf(text)
    case "configs":
      return configsOf(text)
    case "flag":
      return text === "true"
    default:
      return text
  }
}

/** A value, and the names of its place in a body. */
export interface Placed {
  readonly keys: ReadonlyArray<string>
  readonly to: unknown
}

export const nested = (values: ReadonlyArray<Placed>): Record<string, unknown> => {
  const body: Record<string, unknown> = {}
  for (const { keys, to } of values) {
    let place = body
    for (const key of keys.slice(0, -1)) {
      const inner: Record<string, unknown> = (place[key] as Record<string, unknown> | undefined) ?? {}
      place[key] = inner
      place = inner
    }
    const last = keys.at(-1)
    if (last !== undefined) place[last] = to
  }
  return body
}

/** Returns the body of a form; an empty field is null if `withEmpty`, and else left out. */
export const bodyOf = (
  fields: ReadonlyArray<Field>,
  texts: Texts,
  withEmpty = false
): Record<string, unknown> =>
  nested(
    fields.flatMap((one) => {
      const text = (texts[one.path] ?? "").trim()
      const keys = one.path.split(".")
      if (text === "") return withEmpty ? [{ keys, to: null }] : []
      return [{ keys, to: valueOf(one, text) }]
    })
  )

export const FieldInput = (props: {
  readonly field: Field
  readonly text: string
  readonly isReadOnly?: boolean
  readonly onChange: (text: string) => void
}): View => {
  const { choices = [], hint, kind, label } = props.field
  const isReadOnly = props.isReadOnly === true
  const id = useId()
  const changed = onText(props.onChange)
  const problem = problemOf(kind, props.text)
  const common = {
    id,
    value: props.text,
    "aria-describedby": `${id}-hint`,
    "aria-invalid": problem !== undefined
  }
  const options = choices.map(([value, text]) => (
    <option key={value} value={value}>
      {text}
    </option>
  ))
  const control = () => {
    switch (kind) {
      case "choice":
      case "flag":
        return (
          <select {...common} disabled={isReadOnly} onChange={changed}>
            {options}
          </select>
        )
      case "lines":
      case "pairs":
      case "configs":
        return <textarea {...common} readOnly={isReadOnly} rows={3} spellcheck={false} onInput={changed} />
      default:
        return (
          <>
            <input
              {...common}
              readOnly={isReadOnly}
              {...(kind === "number" && { inputMode: "decimal" as const })}
              {...(kind === "secret"
                ? { type: "password" as const }
                : { list: choices.length > 0 ? `${id}-choices` : undefined })}
              autocomplete="off"
              spellcheck={false}
              onInput={changed}
            />
            {choices.length > 0 && <datalist id={`${id}-choices`}>{options}</datalist>}
          </>
        )
    }
  }
  return (
    <div class={classes("field", `is-${kind}`)}>
      <label for={id}>{label}</label>
      {control()}
      <span class={problem === undefined ? "hint" : "problem small"} id={`${id}-hint`}>
        {problem ?? hint}
      </span>
    </div>
  )
}

/** The texts of a form as typed, and its fields. */
export const useForm = (initial: Texts | (() => Texts) = {}) => {
  const [texts, setTexts] = useState<Texts>(initial)
  const set = (path: string, text: string): void => setTexts((before) => ({ ...before, [path]: text }))
  const inputs = (fields: ReadonlyArray<Field>): View => (
    <div class="fields">
      {fields.map((one) => (
        <FieldInput
          key={one.path}
          field={one}
          text={texts[one.path] ?? ""}
          onChange={(text) => set(one.path, text)}
        />
      ))}
    </div>
  )
  return { texts, set, inputs }
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
