import { computed, useSignalEffect } from "@preact/signals"
import { whyNoPower, whyNot } from "../../api/session.ts"
import type { Power } from "../../api/types.ts"
import { classes, onText, type View } from "../../dom/el.ts"
import { count, counted } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { askBeforeEnd, Dialog, dialogActions, openDialog } from "../../parts/Dialog.tsx"
import { field, useForm } from "../../parts/form.tsx"
import { action, chips, empty, searchField } from "../../parts/parts.tsx"
import { actOnMany } from "../../state/actions.ts"
import {
  clearFilter,
  columns,
  type Filter,
  filter,
  isColumn,
  isFiltered,
  setFilter
} from "../../state/filter.ts"
import { active, clearSelection, listed, retain, selectAll, selection, tallies } from "../../state/listed.ts"
import { areNodesLoaded, nodes } from "../../state/nodes.ts"
import { addressOf, follow, go } from "../../state/router.ts"
import { titleOf } from "../../state/rows.ts"
import { isCut, isLoaded, MOST, membership, rows } from "../../state/servers.ts"
import { NodeStrip } from "../NodesPage.tsx"
import { showNewRollout } from "../rollouts/RolloutsPage.tsx"
import { DeletedNote, KeptFor } from "./DeletedPage.tsx"
import { ServerTable } from "./ServerTable.tsx"

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

const NAMED = 50

/** The confirmation of a deletion: it names what is destroyed. */
const ConfirmDeletion = ({ ids }: { readonly ids: ReadonlyArray<string> }): View => {
  const { inputs, texts } = useForm()
  const found = ids.flatMap((id) => rows.get(id) ?? [])
  const up = found.filter(({ status }) => status !== "offline" && status !== "installing").length
  const wanted = String(ids.length)
  const isReady = ids.length === 1 || texts.typed === wanted
  return (
    <Dialog title={`Delete ${counted(ids.length, "server")}?`}>
      <p>
        {"Their addresses become free. "}
        {up > 0 && <strong>{`${up} of them ${up === 1 ? "is" : "are"} up and will be stopped. `}</strong>}
      </p>
      <KeptFor />
      <ul class="doomed" tabIndex={0} aria-label="Servers that are deleted">
        {found.slice(0, NAMED).map((row) => (
          <li key={row.id}>
            <span class={classes("dot", `is-${row.status}`)} aria-hidden="true" />
            <span class="doomed-name">{titleOf(row)}</span>
            <code>{row.id}</code>
            <span class="muted">{`${row.blueprint_id} on ${row.node_name}`}</span>
          </li>
        ))}
        {found.length > NAMED && <li>{`and ${counted(found.length - NAMED, "other")}`}</li>}
      </ul>
      {ids.length > 1 && inputs([field("number", "typed", `Type ${wanted} to confirm`)])}
      {dialogActions(
        {
          text: `Delete ${counted(ids.length, "server")}`,
          class: "danger",
          whyNot: isReady ? undefined : `Type ${wanted} first.`,
          onClick: () => {
            clearSelection()
            void actOnMany(ids, "delete")
          }
        },
        "Keep them"
      )}
    </Dialog>
  )
}

const powers: ReadonlyArray<readonly [Power, string, "play" | "stop" | "restart"]> = [
  ["start", "Start", "play"],
  ["stop", "Stop", "stop"],
  ["restart", "Restart", "restart"]
]

const BulkBar = (): View | null => {
  const ids = [...selection.value]
  if (ids.length === 0) return null
  return (
    <div class="across bulk" role="toolbar" aria-label="Actions on the selected servers">
      <span class="bulk-count" role="status">{`${counted(ids.length, "server")} selected`}</span>
      {ids.length < listed.value.length && (
        <button type="button" class="link" onClick={selectAll}>{`Select all ${listed.value.length}`}</button>
      )}
      <span class="bulk-line" aria-hidden="true" />
      {powers.map(([power, text, name]) =>
        action({
          text,
          icon: name,
          class: "ghost",
          whyNot: whyNoPower(power),
          onClick: () => askBeforeEnd(ids, power, () => void actOnMany(ids, power))
        })
      )}
      {action({
        text: "Roll out…",
        icon: "layers",
        class: "ghost",
        whyNot: whyNot("change"),
        onClick: () => showNewRollout(ids)
      })}
      {action({
        text: "Delete",
        icon: "trash",
        class: "ghost is-dangerous",
        whyNot: whyNot("delete"),
        onClick: () => openDialog(<ConfirmDeletion ids={ids} />)
      })}
      <button type="button" class="ghost square" aria-label="Clear the selection" onClick={clearSelection}>
        {icon("close")}
      </button>
    </div>
  )
}

const create = () => (
  <button type="button" class="primary" onClick={() => go(addressOf.new)}>
    Create a server
  </button>
)

const NoServers = (): View => {
  if (isFiltered(filter.value)) {
    return empty(
      "search",
      "No server matches",
      `None of ${counted(rows.size, "server")} has all of these properties.`,
      <button type="button" onClick={clearFilter}>
        Show all servers
      </button>
    )
  }
  if (areNodesLoaded.value && nodes.value.length === 0) {
    return empty(
      "node",
      "No node yet",
      "A node is a machine that runs servers. Start one with muster node, or set MUSTER_EMBEDDED_NODE=true for a node in this service."
    )
  }
  return empty(
    "servers",
    "No server yet",
    "Create the first one from a blueprint. It appears here the moment the service has stored it.",
    whyNot("create") === undefined && create(),
    <DeletedNote />
  )
}

export const ServersPage = (): View => {
  useSignalEffect(() => {
    membership.value
    retain((id) => rows.has(id))
  })
  return (
    <div class="servers-page">
      <h1 class="unseen">Servers</h1>
      <NodeStrip />
      <Toolbar />
      {isCut.value && (
        <p class="note">{`There are more than ${counted(MOST, "server")}. The list has the oldest that the service finds for the filter.`}</p>
      )}
      {!isLoaded.value ? (
        <div class="skeleton" aria-busy="true" aria-label="Loading servers">
          {Array.from({ length: 8 }, () => (
            <div />
          ))}
        </div>
      ) : listed.value.length === 0 ? (
        <NoServers />
      ) : (
        <ServerTable />
      )}
      <BulkBar />
    </div>
  )
}
