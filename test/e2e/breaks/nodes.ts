/** What the control plane says of its nodes, for tests that break something. */
import { Effect } from "effect"
import type { JournalEntry } from "../../../src/domain/Journal.ts"
import { eventually } from "../../support/eventually.ts"
import type { Service } from "../../support/Service.ts"

/** What the journal says of nodes: `n1 lost`. */
export const nodeNews = (journal: ReadonlyArray<JournalEntry>) =>
  journal.flatMap(({ change }) =>
    change.topic === "node:changed" ? [`${change.node_id} ${change.kind}`] : []
  )

/** Waits until the control plane has heard of the node so many times more, whatever its clock says. */
export const heardAgain = Effect.fnUntraced(function* (api: Service, id: string, times: number) {
  const seen = new Set<string>()
  const look = Effect.map(
    api.request("GET", `/api/nodes/${id}`),
    ({ json }) => seen.add(json.last_seen_at).size
  )
  yield* eventually(look, (size) => size > times)
})
