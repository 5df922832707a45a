import { request, useGet } from "../../api/http.ts"
import { quotaText } from "../../api/session.ts"
import type { Key, KeyScope, NamedQuota, Right } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { FormDialog } from "../../parts/Dialog.tsx"
import { checks, numberIn, useForm } from "../../parts/fieldInput.tsx"
import { pairsOf } from "../server/fields.ts"

interface KeyForm {
  readonly name: string
  readonly scope: KeyScope
  /** Only of the scope `Operator`. */
  readonly rights: ReadonlyArray<Right>
  readonly servers: string
  readonly blueprints: string
  readonly labels: string
  readonly maxServers: string
  readonly maxMemory: string
  /** The name of a shared quota; empty: none. */
  readonly quota: string
  /** Days; empty: never. */
  readonly expires: string
}

const scopes: ReadonlyArray<readonly [KeyScope, string]> = [
  ["AppAdmin", "AppAdmin: everything"],
  ["Operator", "Operator: servers, with chosen rights"],
  ["ReadOnly", "ReadOnly: reads and streams"],
  ["Metrics", "Metrics: /metrics only"],
  ["Node", "Node: registers one node"]
]

/** The rights of an `Operator` key, and what each allows; `read` is in all of them. */
const rights: ReadonlyArray<readonly [Right, string]> = [
  ["power", "All power actions"],
  ["start", "Start"],
  ["stop", "Stop"],
  ["restart", "Restart"],
  ["kill", "Kill"],
  ["pause", "Pause, continue"],
  ["console", "Open consoles"],
  ["commands", "Send commands"],
  ["change", "Change, upgrade, roll out, drain"],
  ["create", "Create servers"],
  ["delete", "Delete servers"]
]

const emptyKeyForm: KeyForm = {
  name: "",
  scope: "Operator",
  rights: ["power", "console", "commands", "change"],
  servers: "",
  blueprints: "",
  labels: "",
  maxServers: "",
  maxMemory: "",
  quota: "",
  expires: ""
}

const DAY = 24 * 3600

const takesLimits = (scope: KeyScope): boolean => scope === "Operator" || scope === "ReadOnly"
const takesRights = (scope: KeyScope): boolean => scope === "Operator"

const list = (text: string): ReadonlyArray<string> => text.split(/[\s,]+/).filter((word) => word !== "")

const given = <A,>(name: string, text: string, read: (text: string) => A): Record<string, A> =>
  text.trim() === "" ? {} : { [name]: read(text) }

/** The body of `POST /api/keys`; fields that the scope does not take are left out. */
const bodyOf = (form: KeyForm): Record<string, unknown> => ({
  name: form.name.trim(),
  scope: form.scope,
  ...given("expires_in", form.expires, (text) => numberIn(text, DAY)),
  ...(takesRights(form.scope) && {
    allow: form.rights,
    ...given("max_servers", form.maxServers, numberIn),
    ...given("max_memory", form.maxMemory, numberIn),
    ...given("quota", form.quota, String)
  }),
  ...(takesLimits(form.scope) && {
    ...given("servers", form.servers, list),
    ...given("blueprints", form.blueprints, list),
    ...given("labels", form.labels, (text) => Object.fromEntries(pairsOf(text)))
  })
})

export type NewKey = Key & { readonly key: string }

export const NewKeyDialog = (props: {
  readonly onClose: () => void
  readonly onCreated: (key: NewKey) => void
}): View => {
  const { field, set, values } = useForm<KeyForm>(emptyKeyForm)
  const found = useGet<ReadonlyArray<NamedQuota>>("/api/quotas", 0)
  const quotas = found?.ok === true ? found.body : []
  return (
    <FormDialog
      title="New key"
      button="Create the key"
      whyNot={values.name.trim() === "" ? "Enter a name first." : undefined}
      onSubmit={() => request<NewKey>("POST", "/api/keys", { body: bodyOf(values) })}
      onDone={props.onCreated}
      onClose={props.onClose}
      class="is-wide"
    >
      <div class="fields">
        {field("name", "Name", "The program or person that has it.")}
        {field("scope", "Scope", "", { kind: "choice", choices: scopes })}
        {field("expires", "Valid for, days", "Empty: until it is revoked.", { kind: "number" })}
      </div>
      {takesRights(values.scope) &&
        checks({
          name: "Rights",
          choices: rights,
          chosen: values.rights,
          onChange: (chosen) => set({ rights: chosen })
        })}
      {takesLimits(values.scope) && [
        <p key="limits" class="muted">
          Limits. An empty one limits nothing; a server must meet all.
        </p>,
        <div key="fields" class="fields">
          {field("servers", "Servers", "Ids, separated by spaces.")}
          {field("blueprints", "Blueprints", "Ids, separated by spaces.")}
          {field("labels", "Labels", "One key=value a line.", { kind: "pairs" })}
          {takesRights(values.scope) && [
            field("maxServers", "Most servers", "That it has created and that exist.", { kind: "number" }),
            field("maxMemory", "Most memory, MiB", "The sum of their memory limits.", { kind: "number" }),
            quotas.length > 0 &&
              field("quota", "Shared quota", "Its keys count together.", {
                kind: "choice",
                choices: [
                  ["", "None"],
                  ...quotas.map((quota) => [quota.name, `${quota.name}: ${quotaText(quota)}`] as const)
                ]
              })
          ]}
        </div>
      ]}
    </FormDialog>
  )
}
