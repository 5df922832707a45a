import { Effect } from "effect"
import type { DrainPlan } from "../../contract/domain/Drain.ts"
import type { Node, NodeDetail } from "../../contract/domain/Node.ts"
import { ask } from "../shared/musterClient.ts"
import { labelledServers } from "../shared/named.ts"
import { type Listing, type OutputOptions, printList } from "../shared/output.ts"
import { withCommands } from "../shared/routeCommands.ts"
import { note } from "../shared/terminal.ts"

/** A server of a node that is to be drained; `to`: its destination, `reason`: why it would stay. */
interface Leaving {
  readonly id: string
  readonly server: string
  readonly to: string
  readonly reason: string
}

const listing: Listing<Leaving> = {
  id: ({ id }) => id,
  columns: [
    { name: "server", of: ({ server }) => server },
    { name: "to", of: ({ to }) => to },
    { name: "stays, because", of: ({ reason }) => withCommands(reason) }
  ]
}

const isPlan = (answer: NodeDetail | DrainPlan): answer is DrainPlan => "migrations_total" in answer

export const servers = (count: number): string => (count === 1 ? "1 server" : `${count} servers`)

/** Returns the sentence about the servers that are not saved: they stay until they stop, and are deleted then. */
export const runningOut = ({ running_out }: Pick<DrainPlan, "running_out">): string =>
  running_out === 0 ? "" : ` Not moved, because not saved: ${servers(running_out)}.`

/** Shows what a drain with `move` would do with each saved server of a node. */
export const preview = Effect.fnUntraced(function* (node: Node, flags: OutputOptions) {
  const answer: NodeDetail | DrainPlan = yield* ask((muster) =>
    muster.nodes.drained({
      params: { node: node.id },
      query: { dry_run: true },
      payload: { drained: true, move: true }
    })
  )
  // The query asks for a plan.
  if (!isPlan(answer)) return
  const { blocked, migrations, migrations_total } = answer
  const labelled = yield* labelledServers({ node_id: node.id })
  const leaving: ReadonlyArray<Leaving> = [
    ...migrations.map(({ server_id, to_name }) => ({
      id: server_id,
      server: labelled(server_id),
      to: to_name,
      reason: ""
    })),
    ...blocked.flatMap(({ reason, server_ids }) =>
      server_ids.map((id) => ({ id, server: labelled(id), to: "", reason }))
    )
  ]
  yield* printList(flags, listing, leaving, `No saved servers are on ${node.name}.`)
  const stay = blocked.reduce((sum, { total }) => sum + total, 0)
  yield* note(
    `${migrations_total} would migrate, ${stay} would stay.${runningOut(answer)} Nothing was changed.`
  )
})
