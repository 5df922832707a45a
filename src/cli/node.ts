import { node as daemon } from "../app/node.ts"
import { nodeSettings } from "../shared/config/node.ts"
import { command } from "./shared/command.ts"

/** `muster node`: runs the daemon of a host (spec 9). */
export const node = command("node", {
  description: "Run the daemon of a node; docs/nodes.md has an example.",
  settings: nodeSettings,
  short: "Run the daemon of a node",
  examples: {
    "MUSTER_NODE_KEY_FILE=/etc/muster/node.key muster node":
      "Beside the control plane, with a key of scope Node",
    "MUSTER_CONTROL_URL=https://muster.example.com MUSTER_NODE_KEY_FILE=/etc/muster/node.key MUSTER_NODE_URL=https://node-2.example.com:5585 muster node":
      "On another machine"
  },
  input: {},
  *run() {
    yield* daemon
  }
})
