import { useState } from "preact/hooks"
import type { SettingView, SystemInfo } from "../../api/types.ts"
import { useGet } from "../../api/useGet.ts"
import { classes, onText, type View } from "../../dom/el.ts"
import { icon } from "../../dom/icons.tsx"
import { chip, drawReply, empty, listing } from "../../parts/parts.tsx"

const Row = ({ name, source, value }: SettingView): View => (
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

/** The settings of the replica that answers, with their origins. */
export const SettingsPage = (): View => {
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
        <label class="search">
          {icon("search")}
          <span class="unseen">Search settings</span>
          <input
            type="search"
            placeholder="Search settings"
            autocomplete="off"
            spellcheck={false}
            value={words}
            onInput={onText(setWords)}
          />
        </label>
        <div class="across chips" role="group" aria-label="Filter by origin">
          {chip({ text: "All", count: all.length, isChosen: !onlySet, onChoose: () => setOnlySet(false) })}
          {chip({ text: "Changed", count: set, isChosen: onlySet, onChoose: () => setOnlySet(true) })}
        </div>
        <span class="grow" />
        {system?.ok === true && (
          <span class="muted">{`Muster ${system.body.version} on ${system.body.system.os}, ${system.body.system.architecture}`}</span>
        )}
      </div>
      {drawReply(reply, "Loading the settings", () =>
        shown.length === 0
          ? empty("search", "No setting matches", "No name and no value has all of these words.")
          : listing(["Setting", "Value", "Origin"], shown.map(Row), "is-settings")
      )}
      <p class="muted small">
        Settings are environment variables; the service reads them at its start. With several replicas, these
        are those of the one that has answered.
      </p>
    </div>
  )
}
