import { Console } from "effect"
import { Command } from "effect/cli"
import { command, group, switchFlag } from "../shared/command.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { nodeArgument, nodeNamed } from "../shared/named.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"
import { drain } from "./drain.ts"
import { list, show } from "./list.ts"

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
