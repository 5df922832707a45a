import { computed } from "@preact/signals"
import { whyNot } from "../../api/session.ts"
import { onText, type View } from "../../dom/el.ts"
import { count } from "../../dom/format.ts"
import { action, chips, searchField } from "../../parts/parts.tsx"
import {
  clearFilter,
  columns,
  type Filter,
  filter,
  isColumn,
  isFiltered,
  setFilter
} from "../../state/filter.ts"
import { active, listed, tallies } from "../../state/listed.ts"
import { addressOf, follow, go } from "../../state/router.ts"
import { membership, rows } from "../../state/servers.ts"

const statuses: ReadonlyArray<Filter["status"]> = [
  "running",
  "starting",
  "stopping",
  "installing",
  "paused",
  "offline",
  "unknown",
  "failed"
]

/** The blueprints that servers have. */
const blueprintsInUse = computed(() => {
  membership.value
  return [...new Set(Array.from(rows.values(), ({ blueprint_id }) => blueprint_id))].toSorted()
})

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
  const { blueprint, descending, q, sort, status } = filter.value
  const counts = tallies.value
  return (
    <div class="toolbar">
      <div class="across toolbar-row">
        {searchField(
          "Search servers",
          {
            id: "search",
            placeholder: "Search name, id, address, label:team=blue",
            value: q,
            onWords: (q) => setFilter({ q }),
            onKeyDown: focusList
          },
          <kbd aria-hidden="true">/</kbd>
        )}
        <select
          aria-label="Blueprint"
          value={blueprint}
          onChange={onText((blueprint) => setFilter({ blueprint }))}
        >
          <option value="">All blueprints</option>
          {blueprintsInUse.value.map((id) => (
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
            const wanted = value.replace(/^-/, "")
            if (isColumn(wanted)) setFilter({ sort: wanted, descending: value.startsWith("-") })
          })}
        >
          {Object.entries(columns).flatMap(([column, title]) => [
            <option key={column} value={column}>{`${title} ↑`}</option>,
            <option key={`-${column}`} value={`-${column}`}>{`${title} ↓`}</option>
          ])}
        </select>
        <div class="grow" />
        <a class="link" href={addressOf.deleted} onClick={follow}>
          Deleted
        </a>
        {action({
          text: "New server",
          icon: "plus",
          class: "primary",
          whyNot: whyNot("create"),
          onClick: () => go(addressOf.new)
        })}
      </div>
      {chips<Filter["status"]>(
        {
          name: "Filter by status",
          chosen: status,
          choices: [
            ["", "All", rows.size],
            ...statuses
              .filter((one) => (counts[one] ?? 0) > 0 || status === one)
              .map((one) => [one, one === "failed" ? "needs a look" : one, counts[one] ?? 0, one] as const)
          ],
          onChoose: (chosen) => setFilter({ status: chosen === status ? "" : chosen })
        },
        isFiltered(filter.value) && (
          <button
            type="button"
            class="link"
            onClick={clearFilter}
          >{`Clear filters · ${count(listed.value.length)} shown`}</button>
        )
      )}
    </div>
  )
}
