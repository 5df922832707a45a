import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { type Node, type NodeDetail, nodeState } from "../../contract/domain/Node.ts"
import { command, group, switchFlag } from "../shared/command.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { allNodes, nodeArgument, nodeNamed } from "../shared/named.ts"
import { formatOf, type Listing, objectCommand, outputFlags, printList, wide } from "../shared/output.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"
import { drain } from "./drain.ts"

const GIB = 1024 ** 3

const gib = (bytes: number): string => (bytes / GIB).toFixed(1)

const share = (used: number, all: number): string => `${gib(used)}/${gib(all)} GiB`

const listing: Listing<NodeDetail> = {
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name,
    location: ({ location }) => location,
    state: nodeState,
    servers: (node) => String(node.servers),
    memory: wide(({ capacity, committed }) => share(committed.memory_bytes, capacity.memory_bytes)),
    disk: wide(({ capacity, committed }) => share(committed.disk_bytes, capacity.disk_bytes)),
    "ports free": wide(({ ports_free }) => String(ports_free)),
    load: wide(({ usage }) => (usage === null ? "" : usage.load.toFixed(2))),
    "limits not enforced": wide(({ not_enforced }) => (not_enforced ?? []).join(", ")),
    version: wide(({ version }) => version),
    seen: wide(({ last_seen_at }) => last_seen_at ?? ""),
    url: wide(({ url }) => url),
    unreachable: wide(({ unreachable }) => unreachable ?? "")
  }
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

const undrain = command("undrain", {
  description: "End the drain of a node; migrations that have not begun are cancelled",
  examples: {
    "muster nodes undrain node-2": "The node gets servers again",
    "muster nodes undrain node-cac6074c": "A node by its id"
  },
  input: { node: nodeArgument },
  *run({ node: text }) {
    const node = yield* nodeNamed(text)
    yield* ask((muster) => muster.nodes.drained({ params: { node: node.id }, payload: { drained: false } }))
    yield* Console.log(`Node ${node.name} gets servers again.`)
  }
})

const remove = command("remove", {
  description: "Remove a node that has no servers",
  examples: {
    "muster nodes remove node-2": "A node that is away for good, after confirmation",
    "muster nodes remove node-2 --force --yes": "Also while it is connected, without a question"
  },
  input: {
    node: nodeArgument,
    force: switchFlag("force", "Also while the node is connected"),
    yes: yesFlag
  },
  *run({ force, node: text, yes }) {
    const node = yield* nodeNamed(text)
    yield* confirm(`Remove the node ${node.id} (${node.name})?`, yes)
    const { connected, unreachable } = yield* ask((muster) => muster.nodes.get({ params: { node: node.id } }))
    yield* ask((muster) => muster.nodes.remove({ params: { node: node.id }, query: { force } }))
    yield* Console.log(`Node ${node.name} is removed.`)
    if (!connected && unreachable === undefined) return
    yield* Console.error(
      `Node ${node.name} still runs and registers again within seconds. Stop it, or revoke its key (\`muster keys revoke\`).`
    )
  }
})

export const nodes = group("nodes", {
  short: "List, drain and remove nodes of a running service",
  description: "List, show, drain and remove nodes of a running service.",
  subcommands: [list, show, drain, undrain, remove]
}).pipe(Command.provide(CommandClient))
