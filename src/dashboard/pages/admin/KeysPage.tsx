import { useState } from "preact/hooks"
import { segment, useGet } from "../../api/http.ts"
import { caller } from "../../api/session.ts"
import type { Key, KeyScope } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { counted, dateTime } from "../../dom/format.ts"
import { confirmRemoval, openDialog } from "../../parts/Dialog.tsx"
import { checkField } from "../../parts/fieldInput.tsx"
import {
  action,
  adminHead,
  drawReply,
  empty,
  label,
  listing,
  shownSecret,
  status
} from "../../parts/parts.tsx"
import { labelText } from "../../state/rows.ts"
import { useTick } from "../../state/whileVisible.ts"
import { type NewKey, NewKeyDialog } from "./NewKey.tsx"

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

const limitsOf = ({
  blueprints,
  labels = {},
  max_memory,
  max_servers,
  quota,
  servers
}: Key): ReadonlyArray<string> => [
  ...(servers === undefined ? [] : [counted(servers.length, "server")]),
  ...(blueprints ?? []).map((id) => `blueprint ${id}`),
  ...Object.entries(labels).map(([name, value]) => labelText(name, value)),
  ...(max_servers === undefined ? [] : [`at most ${counted(max_servers, "server")}`]),
  ...(max_memory === undefined ? [] : [`at most ${max_memory} MiB`]),
  ...(quota === undefined ? [] : [`quota ${quota}`])
]

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
        <div class="labels">{[allowed, ...limitsOf(key)].map(label)}</div>
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
          action({
            text: "Revoke…",
            class: "ghost is-dangerous",
            onClick: () =>
              confirmRemoval({
                verb: "Revoke",
                name: key.name,
                text: `Requests and streams with this key end at once, and it cannot be made valid again.${isOwn ? " It is the key of this page, which then asks for another." : ""}`,
                path: `/api/keys/${segment(key.id)}`,
                onEnded: onChanged
              })
          })}
      </td>
    </tr>
  )
}

export const KeysPage = (): View => {
  const [tick, again] = useTick(EVERY)
  const [created, setCreated] = useState<NewKey | undefined>(undefined)
  const [withPast, setWithPast] = useState(false)
  const reply = useGet<ReadonlyArray<Key>>("/api/keys", tick)
  const now = Date.now()
  const all = reply?.ok === true ? reply.body.toReversed() : []
  const valid = all.filter((key) => stateOf(key, now)[0] === "valid")
  const shown = withPast ? all : valid
  const past = all.length - valid.length
  const create = () =>
    openDialog((onClose) => (
      <NewKeyDialog
        onClose={onClose}
        onCreated={(key) => {
          setCreated(key)
          again()
        }}
      />
    ))
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
