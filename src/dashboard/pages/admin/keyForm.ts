/** The form of a new key: its fields as typed, and the body of the request. */
import type { KeyScope, Right } from "../../api/types.ts"
import { numberIn } from "../../parts/fieldInput.tsx"
import { pairsOf } from "../server/fields.ts"

export interface KeyForm {
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

export const scopes: ReadonlyArray<readonly [KeyScope, string]> = [
  ["AppAdmin", "AppAdmin: everything"],
  ["Operator", "Operator: servers, with chosen rights"],
  ["ReadOnly", "ReadOnly: reads and streams"],
  ["Metrics", "Metrics: /metrics only"],
  ["Node", "Node: registers one node"]
]

/** The rights of an `Operator` key, and what each allows; `read` is in all of them. */
export const rights: ReadonlyArray<readonly [Right, string]> = [
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

export const emptyKeyForm: KeyForm = {
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

/** Whether keys of a scope may be limited to some servers, or have quotas. */
export const takesLimits = (scope: KeyScope): boolean => scope === "Operator" || scope === "ReadOnly"
export const takesRights = (scope: KeyScope): boolean => scope === "Operator"

const list = (text: string): ReadonlyArray<string> => text.split(/[\s,]+/).filter((word) => word !== "")

const given = <A>(name: string, text: string, read: (text: string) => A): Record<string, A> =>
  text.trim() === "" ? {} : { [name]: read(text) }

/** The body of `POST /api/keys`; fields that the scope does not take are left out. */
export const bodyOf = (form: KeyForm): Record<string, unknown> => ({
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
