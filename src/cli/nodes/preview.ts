import { Effect } from "effect"
import { committedMemoryBytes } from "../../domain/Limits.ts"
import type { Node } from "../../domain/Node.ts"
import type { Server } from "../../domain/Server.ts"
import { ask } from "../shared/musterClient.ts"
import { allNodes } from "../shared/named.ts"
import { type Listing, type OutputOptions, printList } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"

/** A server of a node that is to be drained, with what a drain does with it. */
interface Leaving {
  readonly id: string
  readonly name: string
  readonly blueprint_id: string
  readonly status: string
  readonly outcome: "migrates" | "runs out"
  readonly memory_bytes: number
}

const MIB = 1024 ** 2

const mib = (bytes: number): string => `${Math.round(bytes / MIB)} MiB`

const listing: Listing<Leaving> = {
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "name", of: ({ name }) => name },
    { name: "blueprint", of: ({ blueprint_id }) => blueprint_id },
    { name: "status", of: ({ status }) => status },
    { name: "outcome", of: ({ outcome }) => outcome },
    { name: "memory", of: ({ memory_bytes }) => mib(memory_bytes) }
  ]
}

/** Blueprints of one request. */
const PAGE = 1000

/** Returns the blueprints whose servers are saved unless an override says otherwise. */
const savedBlueprints = Effect.gen(function* () {
  const saved = new Set<string>()
  for (let page = 1; ; page++) {
    const { data, meta } = yield* ask((muster) =>
      muster.blueprints.list({ query: { page: String(page), limit: String(PAGE) } })
    )
    for (const { metadata, save } of data) if (save) saved.add(metadata.id)
    if (page >= meta.pagination.total_pages) return saved
  }
})

const isServer = (one: Server | string): one is Server => typeof one !== "string"

/** Shows what a drain with `move` would do with each server of a node, and whether the other nodes have the memory. */
export const preview = Effect.fnUntraced(function* (node: Node, flags: OutputOptions) {
  const saved = yield* savedBlueprints
  const found: ReadonlyArray<Server | string> = yield* ask((muster) =>
    muster.servers.list({ query: { node_id: node.id, include: "status,name,limits" } })
  )
  const leaving = found.filter(isServer).map(
    ({ blueprint_id, id, limits = {}, name, overrides, status = "" }): Leaving => ({
      id,
      name: name ?? "",
      blueprint_id,
      status,
      outcome: (overrides?.save ?? saved.has(blueprint_id)) ? "migrates" : "runs out",
      memory_bytes: committedMemoryBytes(limits)
    })
  )
  yield* printList(flags, listing, leaving, `No servers are on ${node.name}.`)
  const others = (yield* allNodes).filter(({ drained, id }) => id !== node.id && !drained)
  const details = yield* Effect.forEach(others, ({ id }) =>
    ask((muster) => muster.nodes.get({ params: { node: id } }))
  )
  const free = details
    .filter(({ connected }) => connected)
    .reduce(
      (sum, { capacity, committed }) => sum + Math.max(0, capacity.memory_bytes - committed.memory_bytes),
      0
    )
  const moving = leaving.filter(({ outcome }) => outcome === "migrates")
  const needed = moving.reduce((sum, { memory_bytes }) => sum + memory_bytes, 0)
  yield* note(
    `${moving.length} would migrate and need ${mib(needed)} of memory; ${details.length} other nodes have ${mib(free)} that is not reserved. ${leaving.length - moving.length} would be deleted when they stop. Nothing was changed.`
  )
})
