import { numberIn } from "../../parts/fieldInput.tsx"
import { configsOf, pairsOf } from "../server/fields.ts"

/** The form of a creation, as typed. */
export interface Form {
  readonly blueprint: string
  readonly name: string
  readonly node: string
  readonly memory: string
  readonly version: string
  readonly save: string
  readonly expires: string
  readonly labels: string
  readonly env: string
  readonly configs: string
  readonly start: boolean
}

export const emptyForm: Form = {
  blueprint: "",
  name: "",
  node: "",
  memory: "",
  version: "",
  save: "",
  expires: "",
  labels: "",
  env: "",
  configs: "",
  start: true
}

const given = <A>(text: string, value: (text: string) => A, key: string): Record<string, A> =>
  text.trim() === "" ? {} : { [key]: value(text.trim()) }

const record = (text: string) => Object.fromEntries(pairsOf(text))

/** The body of `POST /api/servers`; empty fields are left out. */
export const bodyOf = (form: Form): Record<string, unknown> => {
  const overrides = {
    ...given(form.memory, (text) => ({ memory_limit: numberIn(text) }), "limits"),
    ...given(form.version, String, "version"),
    ...given(form.save, (text) => text === "true", "save"),
    ...given(form.env, record, "env"),
    ...given(form.configs, configsOf, "configs")
  }
  return {
    blueprint_id: form.blueprint,
    start: form.start,
    ...given(form.name, String, "name"),
    ...given(form.node, String, "node_id"),
    ...given(form.labels, record, "labels"),
    ...given(form.expires, (text) => numberIn(text, 3600), "expires_in"),
    ...(Object.keys(overrides).length > 0 && { overrides })
  }
}
