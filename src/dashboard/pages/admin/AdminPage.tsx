import { h } from "preact"
import { useState } from "preact/hooks"
import { useGet } from "../../api/http.ts"
import { caller, isAdmin } from "../../api/session.ts"
import type { SettingView, SystemInfo } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { chips, drawReply, empty, listing, pageHead, searchField, tabList } from "../../parts/parts.tsx"
import { addressOf, titles } from "../../state/router.ts"
import { KeysPage } from "./KeysPage.tsx"
import { QuotasPage } from "./QuotasPage.tsx"
import { TargetsPage } from "./TargetsPage.tsx"
import { WebhooksPage } from "./WebhooksPage.tsx"

const Setting = ({ name, source, value }: SettingView): View => (
  <tr key={name}>
    <th scope="row">
      <code>{name}</code>
    </th>
    <td>
      {value === null ? (
        <span class="muted">set, not shown</span>
      ) : value === "" ? (
        <span class="muted">empty</span>
      ) : (
        <code class="setting-value">{value}</code>
      )}
    </td>
    <td>
      <span class={classes("tag", source !== "default" && "is-set")}>{source}</span>
    </td>
  </tr>
)

const SettingsPage = (): View => {
  const reply = useGet<ReadonlyArray<SettingView>>("/api/system/settings")
  const system = useGet<SystemInfo>("/api/system")
  const [words, setWords] = useState("")
  const [onlySet, setOnlySet] = useState(false)
  const all = reply?.ok === true ? reply.body : []
  const set = all.filter(({ source }) => source !== "default").length
  const wanted = words.trim().toLowerCase().split(/\s+/)
  const shown = all.filter(
    ({ name, source, value }) =>
      (!onlySet || source !== "default") &&
      wanted.every((word) => `${name} ${value ?? ""}`.toLowerCase().includes(word))
  )
  return (
    <div class="stack admin">
      <div class="across admin-head">
        {searchField("Search settings", { value: words, onWords: setWords })}
        {chips({
          name: "Filter by origin",
          chosen: onlySet,
          choices: [
            [false, "All", all.length],
            [true, "Changed", set]
          ],
          onChoose: setOnlySet
        })}
        <span class="grow" />
        {system?.ok === true && (
          <span class="muted">{`Muster ${system.body.version} on ${system.body.system.os}, ${system.body.system.architecture}`}</span>
        )}
      </div>
      {drawReply(reply, "Loading the settings", () =>
        shown.length === 0
          ? empty("search", "No setting matches", "No name and no value has all of these words.")
          : listing(["Setting", "Value", "Origin"], shown.map(Setting), "is-settings")
      )}
      <p class="muted small">
        Settings are environment variables; the service reads them at its start. With several replicas, these
        are those of the one that has answered.
      </p>
    </div>
  )
}

const parts = {
  keys: KeysPage,
  quotas: QuotasPage,
  webhooks: WebhooksPage,
  targets: TargetsPage,
  settings: SettingsPage
} as const

export type AdminPart = keyof typeof parts

export const AdminPage = ({ part }: { readonly part: AdminPart }): View => {
  const known = caller.value
  return (
    <div>
      {pageHead("Admin", "")}
      {tabList(
        "Parts of the administration",
        (["keys", "quotas", "webhooks", "targets", "settings"] as const).map((one) => ({
          text: titles[one],
          address: addressOf[one],
          isShown: one === part
        }))
      )}
      {known !== undefined &&
        (isAdmin()
          ? h(parts[part], {})
          : empty(
              "key",
              "Only for keys of the scope AppAdmin",
              `The key “${known.name}” has the scope ${known.scope}. Sign in with another key to see this page.`
            ))}
    </div>
  )
}
