import { useSignalEffect } from "@preact/signals"
import { whyNot } from "../../api/session.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { empty } from "../../parts/parts.tsx"
import { clearFilter, filter, isFiltered } from "../../state/filter.ts"
import { listed, retain } from "../../state/listed.ts"
import { areNodesLoaded, nodes } from "../../state/nodes.ts"
import { addressOf, go } from "../../state/router.ts"
import { isCut, isLoaded, MOST, membership, rows } from "../../state/servers.ts"
import { NodeStrip } from "../NodesPage.tsx"
import { BulkBar } from "./BulkBar.tsx"
import { ServerTable } from "./ServerTable.tsx"
import { Toolbar } from "./Toolbar.tsx"

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
    whyNot("create") === undefined && create()
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
