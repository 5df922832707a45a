import { useState } from "preact/hooks"
import { request, segment, useGet, useList } from "../../api/http.ts"
import { caller, limitsOf, quotaText } from "../../api/session.ts"
import type { Key, KeyScope, NamedQuota, Right } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { counted, dateTime } from "../../dom/format.ts"
import { FormDialog, openDialog, removalButton } from "../../parts/Dialog.tsx"
import { bodyOf, checkField, checks, type Field, field, useForm } from "../../parts/form.tsx"
import { adminHead, drawReply, empty, label, listing, shownSecret, status } from "../../parts/parts.tsx"

const EVERY = 15_000

const stateOf = ({ expires_at, revoked_at }: Key, now: number): readonly [string, string] => {
  if (revoked_at !== null) return ["revoked", "offline"]
  if (expires_at !== null && Date.parse(expires_at) <= now) return ["expired", "offline"]
  return ["valid", "running"]
}

const standard: Readonly<Record<KeyScope, string>> = {
  AppAdmin: "everything",
  Operator: "power, console, commands, change",
  ReadOnly: "reads",
  Metrics: "metrics",
  Node: "one node"
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
  ["delete", "Delete servers"],
  ["browse", "Read files"],
  ["files", "Read and write files"],
  ["schedules", "Make schedules"]
]

/** The fields of a new key, as far as its scope has them; an empty limit limits nothing. */
const everyKey = [
  field("text", "name", "Name", "The program or person that has it."),
  field("choice", "scope", "Scope", "", { choices: scopes }),
  field("number", "expires_in", "Valid for, days", "Empty: until it is revoked.", { unit: 24 * 3600 })
]
const restrictions = [
  field("names", "servers", "Servers", "Ids, separated by spaces."),
  field("names", "blueprints", "Blueprints", "Ids, separated by spaces."),
  field("pairs", "labels", "Labels", "One key=value a line.")
]
const folders = field(
  "names",
  "paths",
  "Folders",
  "Such as /plugins, separated by spaces. Files elsewhere stay hidden."
)
const ofOperators = (quotas: ReadonlyArray<NamedQuota>): ReadonlyArray<Field> => [
  field("number", "max_servers", "Most servers", "That it has created and that exist."),
  field("number", "max_memory", "Most memory, MiB", "The sum of their memory limits."),
  ...(quotas.length === 0
    ? []
    : [
        field("choice", "quota", "Shared quota", "Its keys count together.", {
          choices: [
            ["", "None"],
            ...quotas.map((quota) => [quota.name, `${quota.name}: ${quotaText(quota)}`] as const)
          ]
        })
      ])
]

type NewKey = Key & { readonly key: string }

const NewKeyDialog = (props: { readonly onCreated: (key: NewKey) => void }): View => {
  const { inputs, texts } = useForm({ scope: "Operator" })
  const [allow, setAllow] = useState<ReadonlyArray<Right>>(["power", "console", "commands", "change"])
  const quotas = useGet<ReadonlyArray<NamedQuota>>("/api/quotas")
  const isOperator = texts.scope === "Operator"
  const limits = [
    ...(isOperator || texts.scope === "ReadOnly" ? restrictions : []),
    ...(isOperator && (allow.includes("browse") || allow.includes("files")) ? [folders] : []),
    ...(isOperator ? ofOperators(quotas?.ok === true ? quotas.body : []) : [])
  ]
  const body = { ...bodyOf([...everyKey, ...limits], texts), ...(isOperator && { allow }) }
  return (
    <FormDialog
      title="New key"
      button="Create the key"
      whyNot={texts.name?.trim() ? undefined : "Enter a name first."}
      onSubmit={() => request<NewKey>("POST", "/api/keys", { body })}
      onDone={props.onCreated}
      class="is-wide"
    >
      {inputs(everyKey)}
      {isOperator && checks({ name: "Rights", choices: rights, chosen: allow, onChange: setAllow })}
      {limits.length > 0 && <p class="muted">Limits. An empty one limits nothing; a server must meet all.</p>}
      {limits.length > 0 && inputs(limits)}
    </FormDialog>
  )
}

const Row = (key: Key, now: number, onChanged: () => void): View => {
  const [word, colour] = stateOf(key, now)
  const isOwn = key.id === caller.value?.id
  const allowed = key.allow === undefined ? standard[key.scope] : key.allow.join(", ") || "reads"
  return (
    <tr key={key.id} class={classes(word !== "valid" && "is-past")}>
      <th scope="row">
        <span class="across cell-title">
          {key.name}
          {isOwn && <span class="tag">this key</span>}
        </span>
        <code class="server-id">{key.id}</code>
      </th>
      <td>
        <span class="tag">{key.scope}</span>
      </td>
      <td>
        <div class="labels">
          {[allowed, ...limitsOf(key), ...(key.quota === undefined ? [] : [`quota ${key.quota}`])].map(label)}
        </div>
      </td>
      <td>
        <time dateTime={key.created_at}>{dateTime(key.created_at)}</time>
      </td>
      <td>
        {status(word, colour)}
        {key.revoked_at === null && key.expires_at !== null && (
          <span class="muted small">{`until ${dateTime(key.expires_at)}`}</span>
        )}
      </td>
      <td class="cell-actions">
        {word === "valid" &&
          removalButton({
            verb: "Revoke",
            name: key.name,
            text: `Requests and streams with this key end at once, and it cannot be made valid again.${isOwn ? " It is the key of this page, which then asks for another." : ""}`,
            path: `/api/keys/${segment(key.id)}`,
            onEnded: onChanged
          })}
      </td>
    </tr>
  )
}

export const KeysPage = (): View => {
  const { again, reply, ...list } = useList<Key>("/api/keys", EVERY)
  const [created, setCreated] = useState<NewKey | undefined>(undefined)
  const [withPast, setWithPast] = useState(false)
  const now = Date.now()
  const all = list.all.toReversed()
  const valid = all.filter((key) => stateOf(key, now)[0] === "valid")
  const shown = withPast ? all : valid
  const past = all.length - valid.length
  const create = () =>
    openDialog(
      <NewKeyDialog
        onCreated={(key) => {
          setCreated(key)
          again()
        }}
      />
    )
  return (
    <div class="stack admin">
      {adminHead(
        reply?.ok === true ? counted(valid.length, "valid key") : "",
        "New key",
        create,
        past > 0 && checkField(`Show ${past} revoked or expired`, withPast, () => setWithPast(!withPast))
      )}
      {created !== undefined &&
        shownSecret(`The key ${created.name}`, created.key, () => setCreated(undefined))}
      {drawReply(reply, "Loading the keys", () =>
        shown.length === 0
          ? empty(
              "key",
              "No key yet",
              "Give each program and each person a key of its own, with the rights that it needs."
            )
          : listing(
              ["Key", "Scope", "Rights and limits", "Created", "State", ""],
              shown.map((key) => Row(key, now, again))
            )
      )}
    </div>
  )
}
