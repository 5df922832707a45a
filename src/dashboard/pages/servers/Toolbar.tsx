import { whyNot } from "../../api/session.ts"
import type { ServerStatus } from "../../api/types.ts"
import { onText, type View } from "../../dom/el.ts"
import { count } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { action, chip } from "../../parts/parts.tsx"
import { type Column, clearFilter, columns, filter, isFiltered, setFilter } from "../../state/filter.ts"
import { listed, tallies } from "../../state/listed.ts"
import { addressOf, go } from "../../state/router.ts"
import { active } from "../../state/selection.ts"
import { membership, rows } from "../../state/servers.ts"

const statuses: ReadonlyArray<ServerStatus> = [
  "running",
  "starting",
  "stopping",
  "installing",
  "paused",
  "offline",
  "unknown"
]

const statusChip = (text: string, value: typeof filter.value.status, number: number): View => {
  const isChosen = filter.value.status === value
  const onChoose = () => setFilter({ status: isChosen ? "" : value })
  return chip({ text, count: number, isChosen, onChoose, ...(value !== "" && { status: value }) })
}

/** The blueprints that servers have; read when the set of servers changes. */
let known: { readonly at: number; readonly blueprints: ReadonlyArray<string> } = { at: -1, blueprints: [] }

const blueprintsInUse = (): ReadonlyArray<string> => {
  if (known.at !== membership.value) {
    const found = new Set<string>()
    for (const { blueprint } of rows.values()) found.add(blueprint)
    known = { at: membership.value, blueprints: [...found].toSorted() }
  }
  return known.blueprints
}

const names: Readonly<Record<Column, string>> = {
  name: "Name",
  status: "Status",
  blueprint: "Blueprint",
  node: "Node",
  address: "Address",
  memory: "Memory",
  cpu: "CPU",
  uptime: "Uptime",
  created: "Created"
}

const focusList = (event: KeyboardEvent): void => {
  if (event.key === "Escape") {
    if (filter.value.q === "") document.getElementById("servers")?.focus()
    else setFilter({ q: "" })
  } else if ((event.key === "Enter" || event.key === "ArrowDown") && listed.value.length > 0) {
    active.value = 0
    document.getElementById("servers")?.focus()
  } else return
  event.preventDefault()
}

export const Toolbar = (): View => {
  const { blueprint, descending, q, sort } = filter.value
  const counts = tallies.value
  return (
    <div class="toolbar">
      <div class="across toolbar-row">
        <label class="search">
          {icon("search")}
          <span class="unseen">Search servers</span>
          <input
            id="search"
            type="search"
            placeholder="Search name, id, address, label:team=blue"
            autocomplete="off"
            spellcheck={false}
            value={q}
            onInput={onText((q) => setFilter({ q }))}
            onKeyDown={focusList}
          />
          <kbd aria-hidden="true">/</kbd>
        </label>
        <select
          aria-label="Blueprint"
          value={blueprint}
          onChange={onText((blueprint) => setFilter({ blueprint }))}
        >
          <option value="">All blueprints</option>
          {blueprintsInUse().map((id) => (
            <option key={id} value={id}>
              {id}
            </option>
          ))}
        </select>
        <select
          class="sort-select"
          aria-label="Sort by"
          value={`${descending ? "-" : ""}${sort}`}
          onChange={onText((value) => {
            const wanted = columns.find((column) => column === value.replace(/^-/, ""))
            if (wanted !== undefined) setFilter({ sort: wanted, descending: value.startsWith("-") })
          })}
        >
          {columns.flatMap((column) => [
            <option key={column} value={column}>{`${names[column]} ↑`}</option>,
            <option key={`-${column}`} value={`-${column}`}>{`${names[column]} ↓`}</option>
          ])}
        </select>
        <div class="grow" />
        {action({
          text: "New server",
          icon: "plus",
          class: "primary",
          whyNot: whyNot("create"),
          onClick: () => go(addressOf.new)
        })}
      </div>
      <div class="across chips" role="group" aria-label="Filter by status">
        {statusChip("All", "", rows.size)}
        {statuses
          .filter((status) => (counts[status] ?? 0) > 0 || filter.value.status === status)
          .map((status) => statusChip(status, status, counts[status] ?? 0))}
        {((counts.failed ?? 0) > 0 || filter.value.status === "failed") &&
          statusChip("needs a look", "failed", counts.failed ?? 0)}
        {isFiltered(filter.value) && (
          <button
            type="button"
            class="link"
            onClick={clearFilter}
          >{`Clear filters · ${count(listed.value.length)} shown`}</button>
        )}
      </div>
    </div>
  )
}
