import { Console, Effect } from "effect"
import { type Node, type NodeDetail, nodeState } from "../../contract/domain/Node.ts"
import { command } from "../shared/command.ts"
import { ask } from "../shared/musterClient.ts"
import { allNodes, nodeArgument, nodeNamed } from "../shared/named.ts"
import { formatOf, type Listing, objectCommand, outputFlags, printList } from "../shared/output.ts"

const GIB = 1024 ** 3

const gib = (bytes: number): string => (bytes / GIB).toFixed(1)

const share = (used: number, all: number): string => `${gib(used)}/${gib(all)} GiB`

const listing: Listing<NodeDetail> = {
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "name", of: ({ name }) => name },
    { name: "location", of: ({ location }) => location },
    { name: "state", of: nodeState },
    { name: "servers", of: (node) => String(node.servers) },
    {
      name: "memory",
      wide: true,
      of: ({ capacity, committed }) => share(committed.memory_bytes, capacity.memory_bytes)
    },
    {
      name: "disk",
      wide: true,
      of: ({ capacity, committed }) => share(committed.disk_bytes, capacity.disk_bytes)
    },
    { name: "ports free", wide: true, of: ({ ports_free }) => String(ports_free) },
    { name: "load", wide: true, of: ({ usage }) => (usage === null ? "" : usage.load.toFixed(2)) },
    {
      name: "limits not enforced",
      wide: true,
      of: ({ not_enforced }) => (not_enforced ?? []).join(", ")
    },
    { name: "version", wide: true, of: ({ version }) => version },
    { name: "seen", wide: true, of: ({ last_seen_at }) => last_seen_at ?? "" },
    { name: "url", wide: true, of: ({ url }) => url },
    { name: "unreachable", wide: true, of: ({ unreachable }) => unreachable ?? "" }
  ]
}

const detailOf = (id: Node["id"]) => ask((muster) => muster.nodes.get({ params: { node: id } }))

const AT_A_TIME = 8

export const list = command("list", {
  description:
    "List nodes: id, name, location, state (connected, unreachable, away, key revoked or expired; drained; plain HTTP), servers",
  examples: {
    "muster nodes list": "Each node with its state",
    "muster nodes list -o wide": "Also the memory and disk that servers have reserved"
  },
  input: outputFlags,
  *run(flags) {
    const nodes = yield* Effect.forEach(yield* allNodes, ({ id }) => detailOf(id), { concurrency: AT_A_TIME })
    yield* printList(flags, listing, nodes, "No nodes. `muster node` runs one.")
    // Other forms have the reason among their fields.
    if (formatOf(flags) !== "table") return
    for (const { name, unreachable } of nodes) {
      if (unreachable !== undefined) yield* Console.error(`${name} cannot be called: ${unreachable}`)
    }
  }
})

export const show = objectCommand(
  "show",
  nodeArgument,
  listing,
  (text) => Effect.flatMap(nodeNamed(text), ({ id }) => detailOf(id)),
  {
    description: "Show a node: its state, load and reserved capacity",
    examples: {
      "muster nodes show local": "A node by its name",
      "muster nodes show local --json": "As the API returns it"
    }
  }
)
