/** The control plane's view of its nodes, for tests with faults. */
import { Effect } from "effect"
import type { JournalEntry } from "../../../src/contract/domain/Journal.ts"
import { eventually } from "../../support/eventually.ts"
import type { Service } from "../../support/Service.ts"

/** The changes of nodes in the journal: `n1 lost`. */
export const nodeChangesIn = (journal: ReadonlyArray<JournalEntry>) =>
  journal.flatMap(({ change }) =>
    change.topic === "node:changed" ? [`${change.node_id} ${change.kind}`] : []
  )

/** Waits until the control plane has received that many further heartbeats of the node, independent of its clock. */
export const heartbeatsArrive = Effect.fnUntraced(function* (api: Service, id: string, times: number) {
  const seen = new Set<string>()
  const look = Effect.map(
    api.request("GET", `/api/nodes/${id}`),
    ({ json }) => seen.add(json.last_seen_at).size
  )
  yield* eventually(look, (size) => size > times)
})
